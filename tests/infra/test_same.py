"""The same group on this machine, on SSH hosts and on a cluster: the same environment, names, codes
and log bytes, but for what a table here allows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from scripts import leftovers
from tests.infra.kubernetes.person import a_person
from tests.infra.kubernetes.rig import Rig, a_namespace
from tests.infra.ssh.person import Person, at_the_end
from tests.infra.ssh.rig import a_rig as hosts

pytestmark = [pytest.mark.ssh, pytest.mark.kubernetes]

ARGOSY: Final = Path(sys.executable).with_name("argosy")
SECONDS: Final = 240.0
TASKS: Final = {"meet-0": 0, "meet-1": 0, "bytes-0": 0, "code-0": 7}
TEXT: Final = """name: same
execution: parallel
inter_connection: true
envs: {OF_ALL: '1 and "more"'}
---
name: meet
num_nodes: 2
envs: {OF_TASK: 'a b  c', OF_ALL_TOO: "$OF_ALL"}
run: |
  cat >tell.py <<'PY'
  import json, os, socket
  names = ["meet-0.same", "meet-1.same", "bytes-0.same", "code-0.same", "nobody-0.same"]
  found = {}
  for name in names:
      try:
          found[name] = len({one[4][0] for one in socket.getaddrinfo(name, None, socket.AF_INET)})
      except OSError:
          found[name] = 0
  own = socket.gethostbyname(os.environ["ARGOSY_NODE"] + ".same")
  with open(os.environ["ARGOSY_PEERS"]) as file:
      peers = json.load(file)
  print("TOLD", json.dumps({
      "env": dict(os.environ), "names": found, "files": sorted(os.listdir(".")),
      "own": own == socket.gethostbyname(os.environ["ARGOSY_HOSTNAME"]),
      "peers": sorted("%s-%d" % (one["task"], one["index"]) for one in peers["nodes"]),
  }))
  PY
  exec python3 tell.py
---
name: bytes
run: |
  printf 'not UTF-8: \\377\\376, a return \\r\\n'
  head -c 100000 /dev/zero | tr '\\0' x
  printf '\\nto the other stream\\n' >&2
  seq 3000
  printf 'no newline at the end'
---
name: code
depends_on: {meet: succeeded, bytes: succeeded}
run: exit 7
"""

# Variable -> why its value, or its being there, may differ. All others are the same everywhere.
MAY_DIFFER: Final = {
    "HOME|USER|LOGNAME|SHELL": "of the user there",
    "PWD|OLDPWD|ARGOSY_PEERS|ARGOSY_CHECKPOINT_DIR": "folders of the agent",
    "PATH|LANG|TZ|HOSTNAME": "of the machine, or the image",
    "ARGOSY_HOSTNAME|ARGOSY_HOST_[A-Z]+_[0-9]": "addresses",
    "(ARGOSY|SKYPILOT)_(SETUP_)?NODE_IPS": "addresses",
    "ARGOSY_MARK|(ARGOSY|SKYPILOT)_(TASK_ID|MANAGED_JOB_ID)": "ids",
    "(ARGOSY|SKYPILOT)_CLUSTER_INFO": "it names the infra",
    "ARGOSY_SHARED_DIR": "one machine has a folder that all nodes share, several need a volume",
}


@dataclass
class Told:
    """What one infra showed."""

    code: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    logs: dict[str, bytes] = field(default_factory=dict)
    nodes: dict[str, dict] = field(default_factory=dict)  # of `meet`: what it said of itself


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def told(cluster: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """Infra -> what it showed."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("same")
        starts = {
            "local": stack.enter_context(_local(folder / "local")),
            "ssh/lab": stack.enter_context(_ssh(folder / "ssh")),
            "kubernetes/rig": stack.enter_context(_kubernetes(cluster, folder / "kubernetes")),
        }
        yield {infra: _told(start, infra, folder) for infra, start in starts.items()}


@contextmanager
def _local(folder: Path) -> Iterator[Start]:
    home = folder / "home"
    home.mkdir(parents=True)

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(ARGOSY), *words],
            env={**os.environ, "ARGOSY_HOME": str(home), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    try:
        yield start
    finally:
        left = leftovers.end_home(home)
        assert not left, left


@contextmanager
def _ssh(folder: Path) -> Iterator[Start]:
    folder.mkdir()
    with hosts("--hosts", "3") as rig:
        for person in at_the_end(Person(rig, folder)):
            yield person.start


@contextmanager
def _kubernetes(cluster: Rig, folder: Path) -> Iterator[Start]:
    folder.mkdir()
    with (
        a_namespace(cluster, folder) as space,
        a_person(space, folder / "home") as person,
    ):
        yield person.start


def _told(start: Start, infra: str, folder: Path) -> Told:
    def ran(*words: str) -> tuple[int, bytes, str]:
        """Code, output as it is, errors."""
        with start(*words) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            out = process.stdout.buffer.read()
            return process.wait(SECONDS), out, process.stderr.read()

    file = folder / "same.yaml"
    file.write_text(TEXT)
    told = Told()
    told.code, out, errors = ran("launch", str(file), "-y", "--infra", infra)
    assert told.code == 100, out.decode(errors="replace") + errors
    shown = json.loads(ran("status", "same", "-o", "json")[1])
    for task in shown["tasks"]:
        for node in task["nodes"]:
            name, _, index = node["node"].rpartition("-")
            told.codes[node["node"]] = node["exit_code"]
            told.logs[node["node"]] = ran("logs", "--no-prefix", f"same/{name}/{index}")[1]
    for node in ("meet-0", "meet-1"):
        text = told.logs[node].decode()
        assert text.startswith("TOLD "), text
        told.nodes[node] = json.loads(text.removeprefix("TOLD "))
    return told


@pytest.mark.parametrize("infra", ["ssh/lab", "kubernetes/rig"])
def test_exit_codes_are_the_same(told, infra):
    """Of the command and of every node."""
    assert told["local"].codes == TASKS
    assert (told[infra].code, told[infra].codes) == (told["local"].code, told["local"].codes)


@pytest.mark.parametrize("infra", ["ssh/lab", "kubernetes/rig"])
def test_log_bytes_are_the_same(told, infra):
    """Whatever they are; no line is more, none is less."""
    local = told["local"].logs["bytes-0"]
    assert len(local) > 100_000
    assert b"\xff\xfe, a return \r\n" in local
    assert told[infra].logs["bytes-0"] == local
    assert told[infra].logs["code-0"] == told["local"].logs["code-0"] == b""


@pytest.mark.parametrize("infra", ["ssh/lab", "kubernetes/rig"])
def test_names_are_the_same(told, infra):
    """Each has one address for each peer, none for anybody else, and all peers in its file."""
    for node, local in told["local"].nodes.items():
        there = told[infra].nodes[node]
        assert local["names"] == {
            "meet-0.same": 1, "meet-1.same": 1, "bytes-0.same": 1, "code-0.same": 1,
            "nobody-0.same": 0,
        }  # fmt: skip
        for what in ("names", "own", "peers", "files"):
            assert there[what] == local[what], (node, what)
        assert there["own"]


@pytest.mark.parametrize("infra", ["ssh/lab", "kubernetes/rig"])
def test_environments_are_the_same(told, infra):
    """But for what the table allows; and nothing in the table is there in vain."""
    for node, local in told["local"].nodes.items():
        mine, theirs = local["env"], told[infra].nodes[node]["env"]
        differ = {
            name: (mine.get(name), theirs.get(name))
            for name in mine.keys() | theirs.keys()
            if mine.get(name) != theirs.get(name)
            and not any(re.fullmatch(pattern, name) for pattern in MAY_DIFFER)
        }
        assert not differ, differ
        assert mine["OF_TASK"] == "a b  c"
        assert _ours(mine) == _ours(theirs)


def _ours(environment: dict[str, str]) -> set[str]:
    """The names of the contract, but for what is there only where all nodes share a machine."""
    names = {name for name in environment if re.match(r"ARGOSY_|SKYPILOT_", name)}
    return names - {"ARGOSY_SHARED_DIR"}
