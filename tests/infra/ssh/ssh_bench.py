"""How the suite gets an infra of real SSH hosts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from argosy.infra.api import Infra
from argosy.infra.registry import InfraSettings, open_infras
from argosy.infra.ssh.infra import Ssh
from argosy.model.ids import NodeId, ServerId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement
from tests.infra.ssh.breaking import RigBreaks
from tests.infra.ssh.rig import Rig

NAME = "ssh/lab"
HOSTS = ("host-1", "host-2", "host-3")
POOL = f"ssh: {{pools: {{lab: {{hosts: [{', '.join(HOSTS)}]}}}}}}\n"
ALL = (Accelerator("H100", 8),)


@dataclass
class SshBench:
    """A bench over the pool `lab`."""

    home: Path
    infra: Ssh
    breaks: RigBreaks
    network: str = "host"
    shared_sight: bool = True
    lost_at_once: bool = False  # nothing tells a dead host from a cut link until it answers
    lost_stay: bool = True
    part: str = f"{{infra: {NAME}, cpus: 1}}"  # resources of which three nodes fit
    most: str = f"{{infra: {NAME}, accelerators: 'H100:8'}}"  # of which three fit, and no fourth
    opened: list[Ssh] = field(default_factory=list)

    def placement(self, index: int) -> Placement:
        return self._place(index, Need(cpus=1.0), None)

    def full(self) -> Placement:
        return self._place(0, Need(accelerators=ALL), ALL[0])

    def never(self) -> Placement:
        card = Accelerator("H100", 9)
        return self._place(0, Need(accelerators=(card,)), card)

    def _place(self, index: int, need: Need, card: Accelerator | None) -> Placement:
        return Placement(NodeId("t", index), NAME, f"host-{index + 1}", need, card)

    async def again(self) -> Infra:
        self.opened.append(an_infra(self.home))
        return self.opened[-1]


def configure(home: Path, text: str = POOL) -> None:
    """A home with the pool."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text)


def an_infra(home: Path, name: str = NAME, server: str = "suite") -> Ssh:
    """One infra of a home, as a server would open it."""
    infra = open_infras(InfraSettings(home, ServerId(server), time.time))[name]
    assert isinstance(infra, Ssh)
    return infra


@asynccontextmanager
async def ssh_bench(home: Path, rig: Rig) -> AsyncIterator[SshBench]:
    """A bench; afterwards nobody is connected, and its agents are ended."""
    configure(home)
    bench = SshBench(home, an_infra(home), RigBreaks(rig))
    try:
        yield bench
    finally:
        for infra in (bench.infra, *bench.opened):
            await infra.close()
        end_agents(rig)


def end_agents(rig: Rig, hosts: tuple[str, ...] = HOSTS) -> None:
    """End the agents of all hosts, and look whether anything but sshd is left there."""
    for host in hosts:
        rig.on_host(host, END)


# An agent that is told to end does so, and one may only be starting yet; whatever else bears our
# name would be a stray.
END = r"""
homes=$(ls -d /root/.argosy-agent /home/worker/.argosy-agent 2>/dev/null)
[ -n "$homes" ] || exit 0
tries=0
while grep -lqs -e argosy-agent /proc/[0-9]*/cmdline; do
  for file in $(find $homes -name agent.json); do
    pid=$(sed 's/.*"pid": \([0-9]*\).*/\1/' "$file")
    grep -qs argosy-agent "/proc/$pid/cmdline" && kill "$pid"
  done
  tries=$((tries + 1))
  [ $tries -lt 200 ] || {
    for one in $(grep -ls argosy-agent /proc/[0-9]*/cmdline); do tr '\0' ' ' <"$one"; echo; done
    exit 1
  }
  sleep 0.05
done
rm -rf $homes /var/tmp/argosy-leases.json
"""
