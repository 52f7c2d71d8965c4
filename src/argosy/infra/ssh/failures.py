"""What `ssh` says when it fails, in our words: who can mend it, and by which command."""

from __future__ import annotations

import shlex
from typing import Final

from argosy.errors import AccessError, ArgosyError, InfraError, Unreachable
from argosy.infra.ssh.config import HostConfig

EXIT_SSH: Final = 255  # of `ssh` itself
AGAIN: Final = 5.0  # seconds until a host that did not answer is worth another try


def translated(said: str, host: HostConfig) -> ArgosyError:
    """The error for what a failed `ssh` wrote to its standard error."""
    words, low = _last_line(said), said.lower()
    by_hand = shlex.join(["ssh", *host.words, "true"])
    if "remote host identification has changed" in low:
        return AccessError(
            f"{host.name} shows another host key than before",
            code="ssh/host-key-changed",
            hint=(
                "ask who runs the host whether its key was changed; somebody may be in between",
                f"if it was: `ssh-keygen -R {_known_as(host)}`, then `{by_hand}`",
            ),
        )
    if "host key verification failed" in low or "host key is known for" in low:
        accept = shlex.join(["ssh", "-o", "StrictHostKeyChecking=accept-new", *host.words, "true"])
        return AccessError(
            f"the host key of {host.name} is not known here",
            code="ssh/host-key-unknown",
            hint=(f"accept it: `{accept}`", "or set `accept_new: true` in the pool"),
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


def not_python(host: HostConfig, old: str) -> AccessError:
    """The host has no Python that the agent runs on. `old`: what was found instead, or ""."""
    found = f"; it has {old}" if old else ""
    return AccessError(
        f"{host.name} has no Python 3.8 or newer{found}",
        code="ssh/no-python",
        hint="install python3 (>= 3.8) there, so that `command -v python3` finds it",
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


def _known_as(host: HostConfig) -> str:
    return f"'[{host.host}]:{host.port}'" if host.port not in (0, 22) else host.host


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else ""
