"""Real SSH hosts for a test: the rig of tests/rigs/ssh, and an `ssh` that starts on its laptop."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SSHRIG = Path(__file__).resolve().parents[2] / "rigs" / "ssh" / "sshrig"
VERB_SECONDS = 60.0


@dataclass(frozen=True)
class Rig:
    """A rig that is up. `folder` is its own, short, and gone with it."""

    folder: Path

    @property
    def program(self) -> Path:
        """What drives it."""
        return SSHRIG

    def verb(self, *words: str, given: str = "") -> str:
        """Run a verb of the rig to its end; what it printed."""
        done = subprocess.run(
            [str(SSHRIG), *words], env=self.environment, capture_output=True, text=True,
            input=given, timeout=VERB_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"sshrig {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def runs(self, host: str) -> bool:
        """Whether the host is on; a frozen or cut one is."""
        words = [str(SSHRIG), "host", host, "--", "true"]
        done = subprocess.run(
            words, env=self.environment, capture_output=True, timeout=VERB_SECONDS, check=False
        )
        return done.returncode == 0

    def on_host(self, host: str, script: str) -> str:
        """Run a shell script as a host's root, without ssh; it is on no command line."""
        return self.verb("host", host, "--", "sh", given=script)

    @property
    def home(self) -> Path:
        """The rig's own folder; its last part names network namespaces, so it is one of a kind."""
        return self.folder / self.folder.name

    @property
    def user_home(self) -> Path:
        """The laptop's user's."""
        return self.home / "laptop" / "home"

    @property
    def environment(self) -> dict[str, str]:
        """For whatever has to do with this rig."""
        run = self.folder / "run"
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {
            **os.environ, "SSHRIG_HOME": str(self.home), "XDG_RUNTIME_DIR": str(run), "PATH": path,
        }  # fmt: skip


@contextmanager
def a_rig(*words: str) -> Iterator[Rig]:
    """A rig, `words` as `sshrig up` takes them; afterwards it is down."""
    rig = Rig(Path(tempfile.mkdtemp(prefix="arg-")))
    (rig.folder / "run").mkdir(mode=0o700)
    (rig.folder / "bin").mkdir()
    try:
        rig.verb("up", *words)
        laptop = (rig.home / "laptop" / "pid").read_text().strip()
        ssh = rig.folder / "bin" / "ssh"
        ssh.write_text(
            f"#!/bin/sh\nexec nsenter --target={laptop} --net --mount --uts --ipc -- "
            f'env -u SSH_AUTH_SOCK HOME={rig.user_home} /usr/bin/ssh "$@"\n'
        )
        ssh.chmod(0o755)
        yield rig
    finally:
        try:
            rig.verb("down")
        finally:
            shutil.rmtree(rig.folder, ignore_errors=True)
