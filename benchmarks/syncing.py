"""How fast code gets to an SSH host that does not have it, beside rsync over the same `ssh`.

    python benchmarks/syncing.py [--quick]          as root, with rsync: the host is the rig's

Ours is from the agent's request to its store having all; rsync is `-az` into a new folder. For the
large file, of random bytes, it is `-a`: to pack that would only cost time.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from measure import ROOT, Budget, Options, Ratio, Row, alone, interleaved, load, say

sys.path.insert(0, str(ROOT))

from argosy.clock import Clock
from argosy.control.delivery import Delivery
from argosy.control.entry import Entry
from argosy.infra.api import HostRef
from argosy.infra.ssh.infra import Ssh
from argosy.model.action import LeaseRequest
from argosy.model.ids import GroupId, NodeId, lease_id
from argosy.model.needs import Need
from argosy.model.plan import Placement
from argosy.model.spec import Workdir
from argosy.storage import snapshot
from argosy.testing.builders import a_group, a_lease, a_task
from tests.infra.ssh.rig import a_rig
from tests.infra.ssh.ssh_bench import an_infra, configure, end_agents

FILES = 10_000
LARGE_MIB = 256
HOST = HostRef("ssh/lab", "host-1")
RSYNC = "rsync"
BUDGET = Budget("<= 1.5x rsync", ratio=Ratio(RSYNC, 1.5, margin=1.5))


class Rim:
    """The part of a controller that a delivery needs."""

    def __init__(self) -> None:
        self.entries: dict[GroupId, Entry] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        """Start a task."""
        self.tasks.append(asyncio.create_task(work, name=name))
        return self.tasks[-1]

    def news(self, entry: Entry) -> None:
        """Nobody decides here."""


class Syncing:
    """The contestants; each answers seconds, with contents that nobody has seen."""

    def __init__(self, folder: Path, runner: asyncio.Runner, infra: Ssh) -> None:
        self.folder, self.runner, self.infra = folder, runner, infra
        self.turn = 0
        self.chance = random.Random(1)
        self.words = [f"word{number}" for number in range(3000)]

    def many(self) -> Path:
        """Ten thousand files as programs have them, 2 KiB in the middle."""
        self.turn += 1
        top = self.folder / f"many{self.turn}"
        for number in range(FILES):
            path = top / f"package{number % 100:02}" / f"module{number}.py"
            if number < 100:
                path.parent.mkdir(parents=True)
            lines = self.chance.randint(5, 50)
            path.write_text(
                "\n".join(" ".join(self.chance.choices(self.words, k=10)) for _ in range(lines))
            )
        return top

    def large(self) -> Path:
        """One file that cannot be packed."""
        self.turn += 1
        top = self.folder / f"large{self.turn}"
        top.mkdir()
        with open(top / "weights", "wb") as file:
            for _ in range(LARGE_MIB):
                file.write(os.urandom(1 << 20))
        return top

    def ours(self, code: Path) -> float:
        """Bring a folder to the agent's store."""
        group = GroupId(f"gbench-{self.turn}")
        taken = snapshot.take(self.folder / "home", group, [str(code)])[str(code)]
        seconds = self.runner.run(self._bring(group, taken))
        shutil.rmtree(code)
        return seconds

    async def _bring(self, group: GroupId, taken: str) -> float:
        placement = Placement(NodeId("trainer", 0), HOST.infra, HOST.host, Need(), None)
        held = a_lease("trainer-0", group=group, placement=placement, host=HOST.host)
        rim = Rim()
        task = a_task("trainer", workdir=Workdir(taken))
        rim.entries[group] = Entry(a_group(task, id=group, leases=(held,)))
        delivery = Delivery({HOST.infra: self.infra}, Clock(), rim)
        began = time.monotonic()
        delivery.need(HOST, {"lease": held.id, "tree": Path(taken).name, "path": taken})
        await asyncio.gather(*rim.tasks)
        seconds = time.monotonic() - began
        assert [one.code for one in rim.entries[group].events] == ["files-sent"]
        return seconds

    def rsync(self, code: Path, options: str) -> float:
        """Bring a folder to a new one."""
        began = time.monotonic()
        words = [RSYNC, options, "-e", "ssh", f"{code}/", f"{HOST.host}:/root/{code.name}/"]
        subprocess.run(words, check=True)
        seconds = time.monotonic() - began
        shutil.rmtree(code)
        return seconds


def sync(options: Options) -> Iterator[Row]:
    """Many small files, and a large one."""
    if os.geteuid() != 0 or shutil.which(RSYNC) is None:
        say("syncing: needs root (for the rig of SSH hosts) and rsync: left out")
        return
    folder, before = Path(tempfile.mkdtemp(prefix="argosy-sync-")), dict(os.environ)
    with a_rig("--hosts", "3") as rig, asyncio.Runner() as runner:
        os.environ.update(rig.environment, HOME=str(rig.user_home))
        configure(folder / "home")
        infra = an_infra(folder / "home")
        try:
            runner.run(_ready(infra))
            racing = Syncing(folder, runner, infra)
            many = interleaved(
                options.rounds(8),
                {
                    "ours": lambda: racing.ours(racing.many()),
                    RSYNC: lambda: racing.rsync(racing.many(), "-az"),
                },
            )
            yield Row(f"sync of {FILES:,} files", many.pop("ours"), "s", BUDGET, many, load())
            large = interleaved(
                options.rounds(4),
                {
                    "ours": lambda: racing.ours(racing.large()),
                    RSYNC: lambda: racing.rsync(racing.large(), "-a"),
                },
            )
            what = f"sync of one file of {LARGE_MIB} MiB"
            yield Row(what, large.pop("ours"), "s", BUDGET, large, load())
        finally:
            runner.run(infra.close())
            end_agents(rig)
            shutil.rmtree(folder)
            os.environ.clear()
            os.environ.update(before)


async def _ready(infra: Ssh) -> None:
    """An agent runs on the host, and the connection is warm for both."""
    group = GroupId("gbench-0")
    node = NodeId("trainer", 0)
    await infra.acquire(
        LeaseRequest(
            lease=lease_id(group, a_group().placing.request),
            group=group,
            group_name="bench",
            node=node,
            placement=Placement(node, HOST.infra, HOST.host, Need(), None),
            grace=1.0,
            start_timeout=60.0,
            network="host",
        )
    )
    stream = await infra.attach(HOST)
    await stream.close()


LINES = (sync,)

if __name__ == "__main__":
    alone(LINES, __doc__)
