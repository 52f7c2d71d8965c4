"""What `ssh` says when it fails, in our words: who can mend it, and by which command."""

from __future__ import annotations

import re
import shlex
from typing import Final

from argosy.errors import AccessError, ArgosyError, InfraError, Unreachable
from argosy.infra.ssh.config import HostConfig

EXIT_SSH: Final = 255  # of `ssh` itself
AGAIN: Final = 5.0  # seconds until a host that did not answer is worth another try
OVER_ANOTHER: Final = "kex_exchange_identification:"  # the way ended before the host said a word
CHANGED: Final = re.compile(r"^Host key for (\S+) has changed", re.MULTILINE)
OFFENDING: Final = re.compile(r"^Offending .*key in (.+):[0-9]+\s*$", re.MULTILINE)


def translated(said: str, host: HostConfig) -> ArgosyError:
    """The error for what a failed `ssh` wrote to its standard error."""
    words, low = _last_line(said), said.lower()
    by_hand = shlex.join(["ssh", *host.words, "true"])
    if "remote host identification has changed" in low:
        return _changed_key(said, host)
    if "host key verification failed" in low or "host key is known for" in low:
        return _unknown_key(said, host)
    if "bad configuration option" in low or "bad owner or permissions" in low:
        return AccessError(
            f"{host.name}: `ssh` refuses its own configuration: {words}",
            code="ssh/configuration",
            hint=f"mend it, until `{by_hand}` does not complain",
        )
    if "permission denied" in low or "too many authentication failures" in low:
        batch = shlex.join(["ssh", "-o", "BatchMode=yes", *host.words, "true"])
        return AccessError(
            f"{host.name} lets nobody in with the keys that are here: {words}",
            code="ssh/permission-denied",
            hint=(
                f"`{batch}` must work without a question: load the key into your agent, "
                "or name it by `identity_file`",
            ),
        )
    if "could not resolve" in low:
        return Unreachable(
            f"{host.name}: {words}",
            code="ssh/unknown-host",
            hint=f"correct the host in the pool, or name it in ~/.ssh/config; try `{by_hand}`",
            retry=AGAIN,
        )
    return Unreachable(
        f"{host.name} cannot be reached: {words or 'the connection ended'}",
        code=_code(low),
        hint=f"see whether the host runs: `{by_hand}`",
        retry=AGAIN,
    )


def _changed_key(said: str, host: HostConfig) -> AccessError:
    """`ssh` names the host as its known_hosts does: an alias of ~/.ssh/config is not in there."""
    named, file = CHANGED.search(said), OFFENDING.search(said)
    remove = ["ssh-keygen", *(["-f", file[1]] if file else [])]
    remove += ["-R", named[1] if named else _known_as(host)]
    by_hand = shlex.join(["ssh", *host.words, "true"])
    return AccessError(
        f"{_whose(said, host)} shows another host key than before",
        code="ssh/host-key-changed",
        hint=(
            "ask who runs the host whether its key was changed; somebody may be in between",
            f"if it was: `{shlex.join(remove)}`, then `{by_hand}`",
        ),
    )


def _unknown_key(said: str, host: HostConfig) -> AccessError:
    text = f"the host key of {_whose(said, host)} is not known here"
    if OVER_ANOTHER in said:  # no option for the host holds for those on the way to it
        by_hand = shlex.join(["ssh", *host.words, "true"])
        hint: tuple[str, ...] = (f"accept it: `{by_hand}` asks at a terminal",)
    else:
        accept = shlex.join(["ssh", "-o", "StrictHostKeyChecking=accept-new", *host.words, "true"])
        hint = (f"accept it: `{accept}`", "or set `accept_new: true` in the pool")
    return AccessError(text, code="ssh/host-key-unknown", hint=hint)


def not_python(host: HostConfig, old: str) -> AccessError:
    """The host has no Python that the agent runs on. `old`: what was found instead, or ""."""
    found = f"; it has {old}" if old else ""
    return AccessError(
        f"{host.name} has no Python 3.8 or newer{found}",
        code="ssh/no-python",
        hint="install python3 (>= 3.8) there, so that `command -v python3` finds it",
    )


def other_agent(host: HostConfig) -> AccessError:
    """The host has leases of this server that the agent which the pool leads to does not know."""
    return AccessError(
        f"what runs on {host.name} was given to another agent than the pool leads to now",
        code="ssh/other-agent",
        hint=(
            "its `user`, `agent_home` or `name` in the pool has changed: put it back until "
            "`argosy status` shows nothing there",
            f"or give up what runs there: `argosy infra lost {host.name}`, then "
            f"`argosy infra forget {host.name}`",
        ),
        retry=AGAIN,
    )


def as_refusal(error: ArgosyError) -> ArgosyError:
    """The same as a refusal of an `acquire`, which is never Unreachable."""
    if not isinstance(error, Unreachable):
        return error
    return InfraError(error.text, code=error.code, hint=error.hints, retry=AGAIN)


def _code(low: str) -> str:
    if "refused" in low:
        return "ssh/refused"
    if "timed out" in low or "no route" in low or "network is unreachable" in low:
        return "ssh/no-answer"
    return "ssh/ended"


def _whose(said: str, host: HostConfig) -> str:
    return f"a host on the way to {host.name}" if OVER_ANOTHER in said else host.name


def _known_as(host: HostConfig) -> str:
    return f"[{host.host}]:{host.port}" if host.port not in (0, 22) else host.host


def _last_line(said: str) -> str:
    """Where the way leads over another host, what that one's `ssh` said comes before the end."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(OVER_ANOTHER)] or lines
    return telling[-1][-300:] if telling else ""
