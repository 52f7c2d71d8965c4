"""A working directory out of a git repository, cloned by this host's own `git`.

Names and passwords are on no command line, in no file that stays and in no message: git gets them
by its environment, from a helper that names variables only.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Dict, List, Tuple

from ..records import dataclass

SECONDS_MAX = 3600.0
SAID_MAX = 400
PR_SET_PDEATHSIG = 1
TOKEN = "GIT_TOKEN"
"""The variable of a task that holds the password for https repositories."""
HELPER = (
    "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n'"
    ' "$ARGOSY_GIT_USER" "$ARGOSY_GIT_PASSWORD"; }; f'
)
ANY_USER = "x-access-token"
"""Where a token is the password, hosts take any name."""


class CloneError(Exception):
    """The repository could not be had; says why."""


@dataclass(frozen=True)
class Repository:
    """What is cloned. `ref`: a branch, tag or commit, "" for the repository's own choice."""

    url: str
    ref: str = ""
    token: str = ""

    @property
    def name(self) -> str:
        """It in words that hold no secret."""
        return "%s at %s" % (self._split()[0], self.ref or "HEAD")

    def into(self, target: str) -> None:
        """Clone into an empty folder; history only where it takes that. Raises CloneError."""
        place, user, password = self._split()
        if place.startswith("-") or self.ref.startswith("-"):
            raise CloneError("%s is no repository" % self.name)
        git = ["git", "-C", target]
        env = dict(
            os.environ, GIT_TERMINAL_PROMPT="0", LC_ALL="C.UTF-8", GIT_ASKPASS="true",
            GIT_SSH_COMMAND="ssh -o BatchMode=yes",
        )  # fmt: skip
        if password:
            env.update(ARGOSY_GIT_USER=user or ANY_USER, ARGOSY_GIT_PASSWORD=password)
            git += ["-c", "credential.helper=", "-c", "credential.helper=" + HELPER]
        self._run([*git, "init", "-q"], env)
        self._run([*git, "remote", "add", "origin", place], env)
        ref = self.ref or "HEAD"
        try:
            self._run([*git, "fetch", "-q", "--depth", "1", "origin", ref], env)
            found = "FETCH_HEAD"
        except CloneError:  # a short commit, or a server that gives no single one
            heads = "+refs/heads/*:refs/remotes/origin/*"
            self._run([*git, "fetch", "-q", "--tags", "origin", heads], env)
            found = self._found(git, env, ref)
        self._run([*git, "checkout", "-q", "--detach", found], env)

    def _found(self, git: List[str], env: Dict[str, str], ref: str) -> str:
        """The commit that the ref means, after everything was fetched."""
        if ref == "HEAD":
            self._run([*git, "remote", "set-head", "origin", "--auto"], env)
        for name in ("refs/remotes/origin/" + ref, ref):
            try:
                words = [*git, "rev-parse", "-q", "--verify", name + "^{commit}"]
                return self._run(words, env).strip()
            except CloneError:
                continue
        raise CloneError("%s: there is no such branch, tag or commit" % self.name)

    def _run(self, words: List[str], env: Dict[str, str]) -> str:
        import subprocess  # only in the child that clones: it costs a megabyte

        try:
            done = subprocess.run(
                words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=SECONDS_MAX, preexec_fn=_end_with_parent,
            )  # fmt: skip
        except FileNotFoundError:
            raise CloneError("%s: `git` is not installed on this host" % self.name) from None
        except subprocess.TimeoutExpired:
            raise CloneError("%s: not within %d s" % (self.name, SECONDS_MAX)) from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-SAID_MAX:]
            raise CloneError("%s: %s" % (self.name, self._masked(said)))
        return done.stdout.decode("utf-8", "replace")

    def _split(self) -> Tuple[str, str, str]:
        """(the address without secrets, user, password)."""
        from urllib.parse import unquote, urlsplit, urlunsplit

        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https"):
            return self.url, "", ""
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if user and not password:  # a token, as hosts of repositories write it
            user, password = "", user
        host = parts.netloc.rpartition("@")[2]
        plain = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
        return plain, user, password or (self.token if parts.scheme == "https" else "")

    def _masked(self, text: str) -> str:
        for secret in (self._split()[2], self.token):
            if secret:
                text = text.replace(secret, "***")
        return text


def _end_with_parent() -> None:
    """Who waits for git may be ended; git then ends, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
