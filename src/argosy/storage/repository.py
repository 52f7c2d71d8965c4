"""Which commit a branch is, asked once for all nodes of a group: by the server, before the launch.

The commit then stands in the record in place of the branch, so nodes that clone at different times,
restarted ones too, have the same code. Where the server cannot ask (only the hosts may have the
key), every node goes by the branch itself, and that is said.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from argosy.errors import InputError
from argosy.model.spec import GroupSpec, TaskSpec

SECONDS: Final = 10.0  # a repository that is slower is left to the nodes
TOKEN: Final = "GIT_TOKEN"
COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
ANY_USER: Final = "x-access-token"
HELPER: Final = (
    "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n'"
    ' "$ARGOSY_GIT_USER" "$ARGOSY_GIT_PASSWORD"; }; f'
)


class _Unknown(Exception):
    """The repository could not be asked; says why."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A spec whose branches are commits, what each of them is, and which are not known."""

    spec: GroupSpec
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def pinned(spec: GroupSpec) -> Pinned:
    """Ask for the commit of every branch and tag that tasks begin with, each once.

    Raises InputError for one that is not there.
    """
    asked = {one for task in spec.tasks if (one := _asked(task)) is not None}
    found = dict(zip(asked, await asyncio.gather(*(_commit(*one) for one in asked))))
    tasks, notes, warnings = [], [], []
    for task in spec.tasks:
        commit = found.get(_asked(task) or ("", "", ""))
        if isinstance(commit, _Unknown):
            warnings.append(
                f"{_named(task)} is looked up by each node for itself, so they may differ: the "
                f"server cannot ask ({commit}); a commit as `ref` is the same everywhere"
            )
        elif task.workdir is not None and commit is not None:
            notes.append(f"{_named(task)} is commit {commit[:12]}, for all nodes")
            task = replace(task, workdir=replace(task.workdir, ref=commit))
        tasks.append(task)
    changed = replace(spec, tasks=tuple(tasks)) if notes else spec
    return Pinned(changed, tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(warnings)))


def _asked(task: TaskSpec) -> tuple[str, str, str] | None:
    """Address, ref and token of what a task begins with; None where nothing has to be asked."""
    workdir = task.workdir
    if workdir is None or not workdir.url or COMMIT.fullmatch(workdir.ref):
        return None
    given = {**dict(task.envs), **dict(task.secrets)}
    return workdir.url, workdir.ref, given.get(TOKEN, "")


def _named(task: TaskSpec) -> str:
    assert task.workdir is not None
    return f"{_split(task.workdir.url)[0]} at {task.workdir.ref or 'HEAD'}"


async def _commit(url: str, ref: str, token: str) -> str | _Unknown:
    """The commit, or why it is not known. Raises InputError: there is no such ref."""
    place, user, password = _split(url)
    if place.startswith("-") or ref.startswith("-"):
        raise InputError(f"{place} at {ref} is no repository", code="workdir/repository")
    # as git itself looks for a name, the first one that is there; a tag may be an object of its own
    names = [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"refs/{ref}", ref]
    password = password or (token if place.startswith("https:") else "")
    try:
        told = await _told(place, user, password, names if ref else ["HEAD"])
    except _Unknown as error:
        return error
    lines = [line.split() for line in told.splitlines()]
    there = {words[1]: words[0] for words in lines if len(words) == 2}
    commit = next((there[name] for name in (names if ref else ["HEAD"]) if name in there), "")
    if not commit:
        raise InputError(
            f"{place} has no branch or tag {ref or 'HEAD'!r}",
            code="workdir/unknown-ref",
            hint=f"`git ls-remote {place}` lists what is there; a commit may be given too",
        )
    return commit


async def _told(place: str, user: str, password: str, names: Iterable[str]) -> str:
    """What `git ls-remote` prints. Raises _Unknown."""
    env = dict(
        os.environ, GIT_TERMINAL_PROMPT="0", LC_ALL="C.UTF-8", GIT_ASKPASS="true",
        GIT_SSH_COMMAND="ssh -o BatchMode=yes", ARGOSY_GIT_USER=user or ANY_USER,
        ARGOSY_GIT_PASSWORD=password,
    )  # fmt: skip
    helper = ["-c", "credential.helper=", "-c", f"credential.helper={HELPER}"] if password else []
    try:
        git = await asyncio.create_subprocess_exec(
            "git", *helper, "ls-remote", place, *names, env=env, cwd="/",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise _Unknown(f"git: {error.strerror}") from error
    try:
        out, said = await asyncio.wait_for(git.communicate(), SECONDS)
    except TimeoutError as error:
        raise _Unknown(f"no answer within {SECONDS:g} s") from error
    finally:
        if git.returncode is None:
            os.killpg(git.pid, 9)  # with the ssh that it started
            await git.wait()
    if git.returncode:
        words = said.decode("utf-8", "replace").strip().partition("\n")[0]
        raise _Unknown(words.replace(password, "***") if password else words)
    return out.decode("utf-8", "replace")


def _split(url: str) -> tuple[str, str, str]:
    """(the address without secrets, user, password)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url, "", ""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user and not password:  # a token, as hosts of repositories write it
        user, password = "", user
    host = parts.netloc.rpartition("@")[2]
    plain = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    return plain, user, password
