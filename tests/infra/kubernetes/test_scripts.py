"""The scripts of a pod, run by a shell here; only their folders are others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from argosy.infra.kubernetes.manifests import scripts
from argosy.infra.kubernetes.marks import NO_PYTHON

SHELLS = [path for name in ("dash", "bash", "busybox") if (path := shutil.which(name))]
MARK = "a70d0d0a"  # of the code that the interpreters here run


class Pod:
    """A folder that stands for a pod."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        self.path, self.mount = folder / "bin", folder / "mount"
        self.path.mkdir()
        self.mount.mkdir()

    def python(self, name: str, version: str) -> None:
        """Put an interpreter there that says its version, and else what it was called with."""
        old = tuple(map(int, version.split("."))) < (3, 8)
        file = self.path / name
        file.write_text(
            f'#!/bin/sh\nif [ "$3" = -c ]; then echo "{version} {"" if old else MARK}"; '
            f'exit {int(old)}; fi\necho "$0 $*"\n'
        )
        file.chmod(0o755)

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        script = script.replace(f" {scripts.ELSEWHERE}", "")
        script = script.replace(scripts.FOLDER, str(self.folder))
        script = script.replace(f"a={scripts.MOUNT}/", f"a={self.mount}/")
        script = script.replace("/dev/termination-log", str(self.folder / "log"))
        file = self.folder / "script"
        file.write_text(script)
        shell = [self.shell, "sh"] if self.shell.endswith("busybox") else [self.shell]
        environment = {
            "PATH": str(self.path), "ARGOSY_SERVER_ID": "5eed", "ARGOSY_POD_IP": "10.0.0.1",
        }  # fmt: skip
        return subprocess.run(
            [*shell, str(file), *words], env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture(params=SHELLS, ids=os.path.basename)
def pod(request: pytest.FixtureRequest, tmp_path: Path) -> Pod:
    return Pod(tmp_path, request.param)


def test_without_python_it_says_so_where_the_cluster_looks(pod: Pod):
    done = pod.run(scripts.START)
    assert done.returncode == NO_PYTHON
    assert (pod.folder / "log").read_text() == "no Python >= 3.8 in the image\n"


def test_an_old_python_is_named(pod: Pod):
    pod.python("python3", "3.7")
    done = pod.run(scripts.START)
    assert done.returncode == NO_PYTHON
    assert done.stderr == "no Python >= 3.8 in the image (it has Python 3.7)\n"


def test_the_first_python_that_will_do_becomes_the_agent(pod: Pod):
    pod.python("python3", "3.7")
    pod.python("python3.12", "3.12")
    pod.python("python3.9", "3.9")
    done = pod.run(scripts.START)
    python = str(pod.path / "python3.12")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{python} -I -S {pod.mount}/agent.pyz container --home ")
    assert "--server-id 5eed" in done.stdout
    assert (pod.folder / "python").read_text() == f"{python}\n{pod.mount}/agent.pyz\n"


def test_code_that_this_python_runs_is_the_agent_where_it_has_come(pod: Pod):
    pod.python("python3", "3.11")
    (pod.mount / "agent.deadbeef.pyz").touch()
    assert f" {pod.mount}/agent.pyz container " in pod.run(scripts.START).stdout
    (pod.mount / f"agent.{MARK}.pyz").touch()
    assert f" {pod.mount}/agent.{MARK}.pyz container " in pod.run(scripts.START).stdout


def test_a_command_of_the_agent_uses_what_was_found(pod: Pod):
    pod.python("python3", "3.11")
    pod.run(scripts.START)
    python = str(pod.path / "python3")
    done = pod.run(scripts.AGENT, "keep", "--home", "two words")
    assert done.stdout == f"{python} -I -S {pod.mount}/agent.pyz keep --home two words\n"
    done = pod.run(scripts.AGENT, "relay", "two words", "hello")
    assert done.stdout == f"{python} -I -S {pod.mount}/relay.py two words hello\n"
