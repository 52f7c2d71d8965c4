"""How else one starts programs on SSH hosts: plain `ssh` and parallel-ssh, over the rig's ways.

parallel-ssh lives in `.bench/venv` and is driven by this file, run there on the rig's laptop:

    python benchmarks/ssh_peers.py HOSTS.json       lines of JSON on standard input: a command each
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.infra.ssh.rig import Rig

PARALLEL_SSH = "parallel-ssh>=2.12,<3"
MASTER = ("-o", "ControlMaster=auto", "-o", "ControlPersist=60")


class PlainSsh:
    """`ssh HOST COMMAND`, all at once. `warm`: over masters that are open already."""

    def __init__(self, rig: Rig, *, warm: bool) -> None:
        self._rig = rig
        sockets = rig.folder / "plain"
        sockets.mkdir(exist_ok=True)
        self._options = [*MASTER, "-o", f"ControlPath={sockets}/%n"] if warm else []

    def begin(self, commands: dict[str, str]) -> list[subprocess.Popen[bytes]]:
        """Start a command on each host, which goes on when its `ssh` ends."""
        return [
            subprocess.Popen(
                ["ssh", "-n", *self._options, host, f"exec {command} </dev/null >/dev/null 2>&1"],
                env=self._rig.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for host, command in commands.items()
        ]

    def close(self, hosts: tuple[str, ...]) -> None:
        """End the masters."""
        for host in hosts if self._options else ():
            words = ["ssh", *self._options, "-O", "exit", host]
            subprocess.run(words, env=self._rig.environment, capture_output=True, check=False)


class ParallelSsh:
    """A process on the laptop that keeps a client of parallel-ssh, and so its connections."""

    def __init__(self, rig: Rig, python: Path, hosts: tuple[str, ...]) -> None:
        listed = {host["name"]: host for host in json.loads((rig.home / "rig.json").read_text())}
        keys = rig.user_home / ".ssh"
        known = [
            {
                "address": listed[name]["address"],
                "user": listed[name]["user"],
                "key": str(
                    keys / ("id_ed25519" if listed[name]["user"] == "root" else "id_worker")
                ),
            }
            for name in hosts
        ]
        file = rig.folder / "parallel.json"
        file.write_text(json.dumps(known))
        words = [str(rig.program), "laptop", "--", str(python), __file__, str(file)]
        self._process = subprocess.Popen(
            words, env=rig.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.run(["true"] * len(hosts))

    def run(self, commands: list[str]) -> list[int]:
        """One command for each host; returns the exit codes when all have begun and ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(commands) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("parallel-ssh has ended")
        codes: list[int] = json.loads(line)
        return codes

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(file: str) -> None:
    """Answer each line of commands with their exit codes."""
    from pssh.clients import ParallelSSHClient
    from pssh.config import HostConfig

    hosts = json.loads(Path(file).read_text())
    how = [HostConfig(user=host["user"], private_key=host["key"]) for host in hosts]
    client = ParallelSSHClient([host["address"] for host in hosts], host_config=how)
    for line in sys.stdin:
        commands: Any = json.loads(line)
        ran = client.run_command("%s", host_args=[(command,) for command in commands])
        client.join(ran)
        print(json.dumps([one.exit_code for one in ran]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
