"""`agent container`, as PID 1 of a PID namespace whose /etc/hosts is a file of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import DEADLINE, Agent, eventually, exists, marked

BEFORE = "127.0.0.1 localhost\n10.9.8.7 neighbour.example\n"
IMAGE = {
    "PATH": f"/opt/of-the-image:{os.defpath}", "FROM_IMAGE": "yes", "WORD": "of the image",
    "HOME": "/home/of-the-image", "HOSTNAME": "pod-7", "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "ARGOSY_POD_IP": "10.1.2.3", "ARGOSY_SECRET": "no", "SKYPILOT_X": "no",
}  # fmt: skip
PLACE = """
mount --make-rprivate / && mount --bind "$1" /etc/hosts || exit 70
[ "$2" = rw ] || mount -o remount,bind,ro /etc/hosts || exit 71
mount -t proc proc /proc || exit 72
shift 2
exec "$@"
"""
"""The machine's own /etc/hosts stays as it is: all of this is in namespaces of its own."""
TRAPS = """
trap 'echo bye; while [ ! -e {folder}/go ]; do sleep 0.05; done; echo done; exit 7' TERM
echo hi
while :; do sleep 0.05; done
"""


class Container(Agent):
    """PID 1 of a container with its agent; `hosts` is its /etc/hosts."""

    hosts: Path
    writable = "rw"

    def start(self, *options: str) -> None:
        """Start the container, and connect to its agent."""
        self.hosts = self.home.parent / f"{self.home.name}.hosts"
        self.hosts.write_text(BEFORE)
        rights = [] if os.geteuid() == 0 else ["--map-root-user"]
        words = ["--mount", "--pid", "--fork", "--kill-child", *rights]
        place = ["sh", "-c", PLACE, "sh", str(self.hosts), self.writable]
        program = [self.python, "-I", "-S", str(self.pyz), "container", "--home", str(self.home)]
        with open(self.home / "agent.log", "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", *words, *place, *program, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**IMAGE, "ARGOSY_MARK": f"agent@{self.home}"},
            )  # fmt: skip
        self.connect()

    @property
    def first(self) -> int:
        """PID 1 of the container, as it is called out here."""
        return children(self.pid)[0]

    @property
    def agents(self) -> list[int]:
        """The agent, once PID 1 has started it."""
        return [pid for pid in children(self.first) if name_of(pid) == "argosy-agent"]

    def leave(self) -> None:
        """What the kubelet does before it kills."""
        os.kill(self.first, signal.SIGTERM)

    def left(self) -> int:
        """The exit code of the container, once it has ended."""
        assert self.process is not None
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        """End the container, if it has not ended."""
        if self.control is not None:
            self.control.close()
        if self.process is not None and self.process.poll() is None:
            for pid in children(self.pid):
                os.kill(pid, signal.SIGKILL)
            self.process.wait(DEADLINE)


def children(pid: int) -> list[int]:
    """The children of a process."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def command(pid: int) -> bytes:
    """The command line of a process; b"" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    """What /proc calls a process; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def new_container(
    pyz: Path, folder: Path, word: str, python: str
) -> Iterator[Callable[[], Container]]:
    made: list[Container] = []

    def make() -> Container:
        home = folder / f"home{len(made)}"
        home.mkdir()
        made.append(Container(python, pyz, home, word))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def container(new_container: Callable[[], Container]) -> Container:
    """A running container, whose agent was spoken to."""
    made = new_container()
    made.start("--address", "127.1.2.3")
    return made


def lines(container: Container, name: str) -> list[str]:
    """What an attempt wrote, once it has ended."""
    container.end(name)
    return container.log(name).decode().splitlines()


# What programs find there


def test_programs_have_the_environment_of_the_image(container: Container) -> None:
    container.assign(("A", 30), run="env", env={"WORD": "of the task"})
    found = dict(line.split("=", 1) for line in lines(container, "A") if "=" in line)
    assert found["FROM_IMAGE"] == "yes"
    assert found["PATH"] == IMAGE["PATH"]
    assert found["WORD"] == "of the task"
    assert found["HOME"] != IMAGE["HOME"]
    assert not {"HOSTNAME", "KUBERNETES_SERVICE_HOST", "SKYPILOT_X", "ARGOSY_POD_IP"} & set(found)
    assert "ARGOSY_SECRET" not in found


def test_what_is_written_down_has_nothing_of_ours(container: Container) -> None:
    said = json.loads((container.home / "container.json").read_text())["env"]
    assert said == {name: IMAGE[name] for name in ("PATH", "FROM_IMAGE", "WORD")}


def test_the_hosts_file_of_the_container_has_the_names(container: Container) -> None:
    container.assign(("A", 20), spread=True, run="cat /etc/hosts; getent hosts b-0.g")
    assert container.stage("A", 20)["address"] == "127.1.2.3"
    nodes = [peer(container, "A", "a"), peer(container, "B", "b", "10.5.5.5")]
    book = {"version": 9, "nodes": nodes, "balanced": []}
    container.assign(("A", 30), spread=True, run="cat /etc/hosts; getent hosts b-0.g", book=book)
    said = lines(container, "A")
    assert "10.9.8.7 neighbour.example" in said
    assert any(line.split() == ["127.1.2.3", "a-0.g", "a-0"] for line in said), said
    assert said[-1].split()[:2] == ["10.5.5.5", "b-0.g"]
    assert "b-0.g" in container.hosts.read_text()
    assert "b-0.g" not in Path("/etc/hosts").read_text()  # the machine's own


def test_a_name_that_moves_is_rewritten_beside_what_was_there(container: Container) -> None:
    def book(version: int, address: str) -> dict[str, Any]:
        nodes = [peer(container, "A", "a"), peer(container, "B", "b", address)]
        return {"version": version, "nodes": nodes, "balanced": []}

    run = "while ! grep -q 10.6.6.6 /etc/hosts; do sleep 0.02; done; cat /etc/hosts"
    container.run("A", run, spread=True, book=book(5, "10.5.5.5"))
    container.assign(("A", 30), spread=True, run=run, book=book(6, "10.6.6.6"))
    said = lines(container, "A")
    assert not [line for line in said if "10.5.5.5" in line]
    assert said.count("10.9.8.7 neighbour.example") == 1


def test_where_the_hosts_file_cannot_be_written_names_are_those_of_the_dns(
    new_container: Callable[[], Container],
) -> None:
    container = new_container()
    container.writable = "ro"
    container.start("--address", "127.1.2.3")
    assert container.status()["facts"]["network"]["names"] == "dns"
    container.assign(("A", 30), spread=True, run='echo "$ARGOSY_HOSTNAME"')
    assert lines(container, "A") == ["a-0.g"]
    assert container.hosts.read_text() == BEFORE


def test_the_infra_balances_so_no_proxy_takes_a_port(container: Container) -> None:
    balanced = {"task": "a", "name": "a.g", "ports": [8000], "address": "10.96.0.5"}
    book = {"version": 5, "nodes": [peer(container, "A", "a")], "balanced": [balanced]}
    container.assign(("A", 30), spread=True, run='cat "$ARGOSY_PEERS"', book=book, balance=[8000])
    said = json.loads("".join(lines(container, "A")))
    assert [(one["task"], one["address"]) for one in said["balanced"]] == [("a", "10.96.0.5")]
    assert not [pid for pid in everything(container.pid) if b"proxy" in command(pid)]


def peer(container: Container, name: str, task: str, address: str = "") -> dict[str, Any]:
    """A node of the book."""
    return {
        "task": task, "index": 0, "node": f"{task}-0", "name": f"{task}-0.g", "address": address,
        "attempt": container.id(name), "live": True, "healthy": True, "ports": [],
    }  # fmt: skip


def everything(pid: int) -> list[int]:
    """The descendants of a process."""
    found = children(pid)
    return found + [one for kid in found for one in everything(kid)]


# Who comes to its agent


def test_who_attaches_may_wait_for_the_agent(new_container: Callable[[], Container]) -> None:
    container = new_container()
    words = [container.python, "-I", "-S", str(container.pyz), "attach", "--home"]
    words += [str(container.home), "--say", "here", "--wait", "60"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as attached:
        assert attached.stdin is not None
        assert attached.stdout is not None
        container.start()
        assert attached.stdout.readline() == b"here\n"
        attached.stdin.write(b'{"op": "status"}\n')
        attached.stdin.flush()
        assert json.loads(attached.stdout.readline())["home"] == str(container.home)
        attached.stdin.close()
        assert attached.wait(DEADLINE) == 0


def test_who_has_waited_for_nothing_is_told(pyz: Path, folder: Path, python: str) -> None:
    words = [python, "-I", "-S", str(pyz), "attach", "--home", str(folder), "--wait", "0.2"]
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 8
    assert b"no agent answers" in done.stderr


# PID 1


def test_a_killed_agent_is_started_again_and_adopts_what_runs(container: Container) -> None:
    container.run("A", "echo $$; sleep 1000")
    eventually(lambda: container.log("A"))
    (before,) = container.agents
    os.kill(before, signal.SIGKILL)
    (after,) = eventually(lambda: [one for one in container.agents if one != before])
    container.connect()
    assert container.status()["pid"] != before
    assert exists(after)
    assert container.stage("A", 30)["stage"] == 30
    assert container.stop("A")[:3] == ("stopped", None, 15)


def test_pid_1_reaps_what_nobody_else_does(container: Container) -> None:
    words = ["nsenter", "-t", str(container.first), "-p", "-m", "sh", "-c", "sleep 1000 & :"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    first = container.first
    (orphan,) = eventually(lambda: [one for one in children(first) if b"1000" in command(one)])
    os.kill(orphan, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{orphan}").exists())


def test_with_nothing_running_it_ends_at_once(container: Container) -> None:
    container.leave()
    assert container.left() == 0
    assert not (container.home / "agent.sock").exists()


def test_what_runs_ends_with_its_grace_and_is_lost(container: Container, folder: Path) -> None:
    trapped(container, folder)
    container.leave()
    eventually(lambda: b"bye" in written(container))
    (folder / "go").touch()
    assert container.end("A") == ("lost", 7, None, "host-leaving")
    assert written(container).endswith(b"bye\ndone\n")
    assert container.left() == 0


def test_a_second_sigterm_shortens_nobodys_grace(container: Container, folder: Path) -> None:
    trapped(container, folder)
    container.leave()
    eventually(lambda: b"bye" in written(container))
    container.leave()
    assert container.status()["report"]["leases"]["L1"]["attempts"][0]["stage"] == 40
    (folder / "go").touch()
    assert container.end("A") == ("lost", 7, None, "host-leaving")
    assert container.left() == 0


def trapped(container: Container, folder: Path) -> None:
    """Start an attempt that needs a file, and more, to end after SIGTERM; its grace is long."""
    container.run("A", TRAPS.format(folder=folder), grace=300)
    eventually(lambda: container.log("A") == b"hi\n")


def written(container: Container) -> bytes:
    """What it wrote, whether an agent lives or not."""
    return (next((container.home / "attempts").glob("*-A")) / "output").read_bytes()


def test_who_never_ends_is_killed_when_its_grace_is_over(container: Container) -> None:
    container.run("A", "trap '' TERM; echo hi; while :; do sleep 0.05; done", grace=1)
    eventually(lambda: container.log("A") == b"hi\n")
    container.leave()
    assert container.end("A") == ("lost", None, 9, "host-leaving")
    assert container.left() == 0


def test_what_had_ended_keeps_its_end(container: Container) -> None:
    container.run("A", "sleep 1000")
    container.assign(("B", 30), lease="L2", run="exit 3")
    assert container.end("B") == ("failed", 3, None, "exit")
    container.leave()
    assert container.end("A")[::3] == ("lost", "host-leaving")
    assert container.end("B") == ("failed", 3, None, "exit")
    assert container.left() == 0


def test_what_was_told_to_end_is_stopped_not_lost(container: Container, folder: Path) -> None:
    trapped(container, folder)
    container.assign(("B", 30), lease="L2", run="sleep 1000")
    container.stage("B", 30)
    container.assign(("A", 50))
    eventually(lambda: b"bye" in written(container))
    container.leave()
    (folder / "go").touch()
    assert container.end("A") == ("stopped", 7, None, "exit")
    assert container.end("B")[::3] == ("lost", "host-leaving")
    assert container.left() == 0


def test_what_was_not_started_yet_is_lost_too(container: Container) -> None:
    container.assign(("A", 20), run="true")
    container.stage("A", 20)
    container.leave()
    assert container.end("A") == ("lost", None, None, "host-leaving")
    assert container.left() == 0


def test_what_is_assigned_meanwhile_never_starts(container: Container, folder: Path) -> None:
    trapped(container, folder)
    container.leave()
    eventually(lambda: b"bye" in written(container))
    container.assign(("B", 30), lease="L2", run=f"touch {folder}/ran")
    assert container.end("B") == ("lost", None, None, "host-leaving")
    (folder / "go").touch()
    assert container.end("A")[::3] == ("lost", "host-leaving")
    assert container.left() == 0
    assert not (folder / "ran").exists()


def test_an_agent_killed_while_it_leaves_is_followed_by_one_that_goes_on(
    container: Container, folder: Path
) -> None:
    trapped(container, folder)
    (agent,) = container.agents
    container.leave()
    eventually(lambda: b"bye" in written(container))
    os.kill(agent, signal.SIGKILL)
    (folder / "go").touch()
    assert container.left() == 0
    assert written(container).endswith(b"done\n")


def test_sigterm_while_no_agent_can_hear_it_ends_what_runs_all_the_same(
    container: Container, folder: Path
) -> None:
    trapped(container, folder)
    (folder / "go").touch()
    os.kill(container.agents[0], signal.SIGKILL)
    container.leave()
    assert container.left() == 0
    assert written(container).endswith(b"done\n")


def test_nothing_of_a_container_is_left_when_it_ends(container: Container, word: str) -> None:
    container.run("A", "(setsid sleep 1000 &); (env -i setsid sleep 1001 &); sleep 1002")
    container.leave()
    assert container.end("A")[::3] == ("lost", "host-leaving")
    assert container.left() == 0
    eventually(lambda: not marked(word))
