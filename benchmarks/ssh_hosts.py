"""How fast SSH hosts are ready, and a group of five starts on five of them; their logs, and what an
attached host costs the server.

    python benchmarks/ssh_hosts.py [--quick]      as root: the hosts are the rig's, on this machine

Hosts and laptop share the cores here: what `sshd` and Python use on 32 hosts is in the figure.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ssh_peers
from home import Home, until
from marks import FIVE, Marks, now
from measure import ROOT, Budget, Options, Ratio, Row, Spread, alone, interleaved, load, say
from peers import BIN
from processes import rss_mib

sys.path.insert(0, str(ROOT))

from argosy.model.needs import Need
from argosy.sdk.client import LogQuery
from tests.infra.ssh.rig import Rig, a_rig
from tests.infra.ssh.ssh_bench import NAME, an_infra, configure, end_agents

MANY = 32
LOG_LINES = 655 * 600
PYTHON_THERE = "/usr/bin/python3"
SSH, PSSH = "ssh x5", "parallel-ssh"
BUDGET_READY = Budget("<= 3 s; <= 2x ssh + python", 3.0, ratio=Ratio("ssh x32: python", 2.0, 1.5))
BUDGET_WARM = Budget("<= 400 ms; <= 2x ssh x5, warm", 400.0, ratio=Ratio(SSH, 2.0, margin=2.0))
BUDGET_COLD = Budget("<= 3 s", 3.0)
BUDGET_LOG = Budget(">= 0.2 M lines/s", least=0.2)
BUDGET_MEMORY = Budget("<= 1 MiB", 1.0)


@contextmanager
def hosts(count: int) -> Iterator[tuple[Rig, tuple[str, ...]]]:
    """So many hosts of one core each, which `ssh` of this process reaches, and their names."""
    before = dict(os.environ)
    words = ("--hosts", str(count), "--cpus", "1", "--share", "--lend", f"bench={ROOT}/benchmarks")
    with a_rig(*words) as rig:
        os.environ.update(rig.environment, HOME=str(rig.user_home))
        try:
            yield rig, tuple(f"host-{number + 1}" for number in range(count))
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def at_home(rig: Rig, names: tuple[str, ...]) -> Iterator[Home]:
    """A home whose pool these hosts are; afterwards nothing is left on them."""
    with Home(f"ssh: {{pools: {{lab: {{hosts: [{', '.join(names)}]}}}}}}\n") as home:
        try:
            yield home
        finally:
            for row in home.client.groups():
                home.client.cancel(row.id, now=True)
                home.client.wait(row.id)
            end_server(home)
            end_agents(rig, names)


def end_server(home: Home) -> None:
    """And its connections."""
    home.client.stop_server()
    until(lambda: not (home.path / "server.json").exists(), "the server has ended")


class Far(Marks):
    """Markers in the folder that all hosts share."""

    def __init__(self, rig: Rig, names: tuple[str, ...] = FIVE) -> None:
        super().__init__(rig.home / "shared", names)
        self.folder.chmod(0o777)
        self.there = f"/srv/shared/{self.folder.name}"

    def command(self, name: str) -> str:
        """What starts a program on its host."""
        return f"{PYTHON_THERE} /opt/bench/service.py {name} {self.there}"

    def end(self) -> None:
        """End the programs that somebody else than Argosy has started."""
        for name in self.names:
            subprocess.run(["kill", str(self.pid(name))], check=True)

    def pid(self, name: str) -> int:
        """As this machine sees it."""
        words = [os.fsencode(word) for word in (name, self.there)]
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                line = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except OSError:
                continue
            if line[-2:] == words and line[0].endswith(b"python3"):
                return int(entry.name)
        raise LookupError(f"{name} does not run")


def group_text(marks: Far, cpus: int = 1) -> str:
    """A task for each marker, each on a host of its own."""
    tasks = [
        f"---\nname: {one}\nresources: {{cpus: {cpus}}}\nrun: exec {marks.command(one)}"
        for one in marks.names
    ]
    return "\n".join(["name: group", "execution: parallel", *tasks]) + "\n"


def launched(home: Home, rig: Rig) -> float:
    """Seconds from the request to the last marker."""
    marks = Far(rig)
    file = home.file("group", group_text(marks))
    began = now()
    group = home.launch(file, infra=NAME)
    took = marks.last() - began
    home.running(group)
    home.end(group)
    return took


def by_ssh(ssh: ssh_peers.PlainSsh, rig: Rig, names: tuple[str, ...]) -> float:
    """The same five by `ssh`."""
    marks = Far(rig)
    began = now()
    children = ssh.begin(dict(zip(names, map(marks.command, FIVE), strict=True)))
    took = marks.last() - began
    marks.end()
    for child in children:
        child.wait()
    return took


def by_pssh(client: ssh_peers.ParallelSsh, rig: Rig) -> float:
    """The same five by parallel-ssh, in the background of their shells."""
    marks = Far(rig)
    began = now()
    client.run([f"{marks.command(name)} </dev/null >/dev/null 2>&1 &" for name in FIVE])
    took = marks.last() - began
    marks.end()
    return took


def five(options: Options) -> Iterator[Row]:
    """The group of five on five hosts: warm, and where no agent is."""
    if unfit():
        return
    ensure_pssh()
    with hosts(5) as (rig, names), ExitStack() as stack:
        warm, cold = ssh_peers.PlainSsh(rig, warm=True), ssh_peers.PlainSsh(rig, warm=False)
        stack.callback(warm.close, names)
        client = ssh_peers.ParallelSsh(rig, BIN / "python", names)
        stack.callback(client.close)
        with at_home(rig, names) as home:
            contestants: dict[str, Callable[[], float]] = {
                "ours": lambda: launched(home, rig),
                SSH: lambda: by_ssh(warm, rig, names),
                PSSH: lambda: by_pssh(client, rig),
            }
            for contestant in contestants.values():
                contestant()
            found = interleaved(options.rounds(16), contestants)
        ours = found.pop("ours")
        what = "SSH: group of 5 on 5 warm hosts"
        yield Row(what, ours, "ms", BUDGET_WARM, found, load(), 1000.0)
        ours_cold, beside = [], []
        for _ in range(options.rounds(6)):
            with at_home(rig, names) as home:
                home.client.ensure_server()
                ours_cold.append(launched(home, rig))
            beside.append(by_ssh(cold, rig, names))
        what = "SSH: group of 5, cold: no connection, no agent there"
        peers = {f"{SSH}, no connection": Spread(tuple(beside))}
        yield Row(what, Spread(tuple(ours_cold)), "s", BUDGET_COLD, peers, load())


def ready(options: Options) -> Iterator[Row]:
    """All facts of 32 hosts: at the first visit, and by a new server where the agent is there."""
    if unfit():
        return
    first, again, plain = [], [], []
    with hosts(MANY) as (rig, names), Home() as home:
        configure(home.path, f"ssh: {{pools: {{lab: {{hosts: [{', '.join(names)}]}}}}}}\n")
        ssh = ssh_peers.PlainSsh(rig, warm=False)
        command = f"{PYTHON_THERE} -I -S -c 1"
        for _ in range(options.rounds(6)):
            first.append(asyncio.run(asked(home.path)))
            again.append(asyncio.run(asked(home.path)))
            end_agents(rig, names)
            began = now()
            for child in ssh.begin(dict.fromkeys(names, command)):
                child.wait()
            plain.append(now() - began)
    peers = {"ssh x32: python": Spread(tuple(plain))}
    for told, values in (("", again), (", first visit", first)):
        what = f"SSH: {MANY} hosts ready{told}"
        yield Row(what, Spread(tuple(values)), "s", BUDGET_READY, peers, load())


async def asked(home: Path) -> float:
    """Seconds until a pool that nobody has asked yet knows all of its hosts."""
    infra = an_infra(home)
    try:
        began = time.monotonic()
        health = await infra.check()
        took = time.monotonic() - began
        if health.problems:
            raise RuntimeError(f"not all are ready: {health.problems}")
        offers = await infra.offers(Need(cpus=1.0))
        assert len([one for one in offers if one.total.cpus]) == MANY
        return took
    finally:
        await infra.close()


def logs(options: Options) -> Iterator[Row]:
    """A program's lines at a client that follows them, through ssh and the server."""
    if unfit():
        return
    writer = f"{PYTHON_THERE} /opt/bench/writer.py {LOG_LINES}"
    with hosts(1) as (rig, names), at_home(rig, names) as home:
        (name,) = names

        def ours() -> float:
            marks = Far(rig, ("took",))
            file = home.file("log", f"name: log\nrun: exec {writer} {marks.there}/took\n")
            group = home.launch(file, infra=NAME)
            count, began = 0, 0.0
            for chunk in home.client.logs(group, LogQuery(follow=True)):
                began = began or now()
                count += len(chunk.data)
            took = now() - began
            assert count == 100 * LOG_LINES, count
            home.client.wait(group)
            home.client.remove(group)
            return LOG_LINES / took / 1e6

        def plain() -> float:
            marks = Far(rig, ("took",))
            began = now()
            words = ["ssh", "-n", name, f"{writer} {marks.there}/took"]
            with subprocess.Popen(words, env=rig.environment, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                count = sum(len(data) for data in iter(lambda: child.stdout.read(1 << 16), b""))
            assert count == 100 * LOG_LINES, count
            return LOG_LINES / (now() - began) / 1e6

        ours()
        found = interleaved(options.rounds(8), {"ours": ours, "ssh, plain": plain})
    what = "SSH: log path to a follower"
    yield Row(what, found.pop("ours"), "M lines/s", BUDGET_LOG, found, load())


def memory(options: Options) -> Iterator[Row]:
    """What 30 more hosts with a running node each cost the server, and their `ssh` beside it."""
    if unfit():
        return
    few, found = 2, []
    with hosts(MANY) as (rig, names):
        for count in (few, MANY):
            with at_home(rig, names[:count]) as home:
                launch_on(home, count)
                found.append(_memory(home, rig))
    (before, ssh_before), (after, ssh_after) = found
    each, ssh = (after - before) / (MANY - few), (ssh_after - ssh_before) / (MANY - few)
    what = "SSH: server memory per attached host"
    beside = {"its ssh processes (PSS)": Spread((ssh,))}
    yield Row(what, Spread((each,)), "MiB", BUDGET_MEMORY, beside, load())


def launch_on(home: Home, count: int) -> None:
    """A group of so many nodes, one a host; returns when all run."""
    text = f"name: many\nnum_nodes: {count}\nresources: {{cpus: 1}}\nrun: sleep 1000\n"
    home.running(home.launch(home.file("many", text), infra=NAME))


def _memory(home: Home, rig: Rig) -> tuple[float, float]:
    """(the server's resident memory, the proportional share of all its `ssh`), both in MiB."""
    time.sleep(3.0)  # what a launch left to do is done
    mark, total = os.fsencode(rig.environment["XDG_RUNTIME_DIR"]), 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "cmdline").read_bytes():
                rollup = (entry / "smaps_rollup").read_text().split("\nPss:")[1]
                total += int(rollup.split()[0])
        except (OSError, IndexError):
            continue
    return rss_mib(home.client.server().pid), total / 1024.0


def unfit() -> bool:
    """Whether the rig cannot run here; says so."""
    if os.geteuid():
        say("ssh_hosts: needs root (for the rig of SSH hosts): left out")
    return bool(os.geteuid())


def ensure_pssh() -> None:
    """Install parallel-ssh beside the other peers, unless it is there."""
    if not list((BIN.parent / "lib").glob("python*/site-packages/pssh")):
        say(f"installing {ssh_peers.PARALLEL_SSH} ...")
        pip = [str(BIN / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, ssh_peers.PARALLEL_SSH], check=True)


LINES = (ready, five, logs, memory)

if __name__ == "__main__":
    alone(LINES, __doc__)
