"""How the suite gets an infra of a real cluster, and breaks its nodes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from argosy.infra.api import Infra
from argosy.infra.kubernetes.infra import Kubernetes
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.ids import NodeId, ServerId
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement
from argosy.testing.infra_bench import until as suite_until
from tests.infra.kubernetes.person import INFRA, config
from tests.infra.kubernetes.rig import Namespace, until

LISTENS = "0A"  # a state in /proc/net/tcp
ALL = (Accelerator("H100", 8),)
# Process 1 of a pod keeps the agent alive, and is left alone.
KILL_AGENT = """
for process in /proc/[0-9]*; do
  read -r name <"$process/comm" && [ "$name" = argosy-agent ] && kill -KILL "${process#/proc/}"
done 2>/dev/null
true
"""


@dataclass
class NodeBreaks:
    """Breaks the cluster's node that a pod is on: no infra can do that itself."""

    space: Namespace
    node_by_pod: dict[str, str] = field(default_factory=dict)  # a pod may be gone by then
    broken: set[str] = field(default_factory=set)

    async def break_host(self, host: str, what: str) -> None:
        """As `argosy.infra.api.Breaks` has it."""
        await asyncio.to_thread(self._break, host, what)

    def _break(self, pod: str, what: str) -> None:
        if what == "restore":
            self._restore(pod)
            return
        node, rig = self._node(pod), self.space.rig
        match what:
            case "kill-agent":
                self.space.kubectl("exec", "-i", pod, "--", "sh", given=KILL_AGENT)
            case "freeze" | "thaw":
                self.broken.add(node)
                rig.verb("node", what, node)
            case "lose":
                self.broken.add(node)
                rig.verb("node", "kill", "--silent", node)
                until(lambda: self._given_up(pod), f"{pod} on {node} is not given up")
            case _:
                raise AssertionError(f"the rig does not know how to {what}")

    def _restore(self, pod: str) -> None:
        node = self.node_by_pod.get(pod)
        if node in self.broken:
            self.space.rig.restore(node)
            self.broken.discard(node)

    def _node(self, pod: str) -> str:
        if pod not in self.node_by_pod:
            self.node_by_pod[pod] = self.space.get("pod", pod)["spec"]["nodeName"]
        return self.node_by_pod[pod]

    def _given_up(self, pod: str) -> bool:
        found = self.space.get("pods")["items"]
        mine = [one for one in found if one["metadata"]["name"] == pod]
        return all("deletionTimestamp" in one["metadata"] for one in mine)


@dataclass
class KubeBench:
    """A bench over the context `rig`."""

    home: Path
    infra: Kubernetes
    breaks: NodeBreaks
    network: str = ""
    shared_sight: bool = False  # an agent may answer before the cluster says that its pod runs
    lost_at_once: bool = True  # `lose` waits until the cluster has given the pod up
    lost_stay: bool = False  # once its node is back, the cluster forgets the pod
    part: str = f"{{infra: {INFRA}, cpus: 5}}"  # of which three fit, and no two on one node
    most: str = f"{{infra: {INFRA}, accelerators: 'H100:8'}}"  # of which three fit, and no fourth
    opened: list[Kubernetes] = field(default_factory=list)

    def placement(self, index: int) -> Placement:
        return self._place(index, Need(cpus=1.0), None)

    def full(self) -> Placement:
        return self._place(0, Need(accelerators=ALL), ALL[0])

    def never(self) -> Placement:
        card = Accelerator("H100", 9)
        return self._place(0, Need(accelerators=(card,)), card)

    def _place(self, index: int, need: Need, card: Accelerator | None) -> Placement:
        return Placement(NodeId("t", index), INFRA, f"node-{index + 1}", need, card)

    async def again(self) -> Infra:
        self.opened.append(an_infra(self.home))
        return self.opened[-1]


def configure(home: Path, space: Namespace, **more: object) -> None:
    """A home with the context; `more` stands in it."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(yaml.safe_dump(config(space, **more)))


def an_infra(home: Path, server: str = "suite") -> Kubernetes:
    """One infra of a home, as a server would open it."""
    infra = open_infras(InfraSettings(home, ServerId(server), time.time))[INFRA]
    assert isinstance(infra, Kubernetes)
    return infra


@asynccontextmanager
async def kube_bench(home: Path, space: Namespace, **more: object) -> AsyncIterator[KubeBench]:
    """A bench; afterwards nobody is connected."""
    configure(home, space, **more)
    bench = KubeBench(home, an_infra(home), NodeBreaks(space))
    try:
        yield bench
    finally:
        for infra in (bench.infra, *bench.opened):
            await infra.close()
        # Whoever hangs up on TLS says goodbye, and the loop has to live until it is said.
        await suite_until(_connections, lambda left: not left)


async def _connections() -> set[str]:
    """The sockets of this process that are connected to anything by TCP."""
    return await asyncio.to_thread(_connected)


def _connected() -> set[str]:
    mine = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            mine.add(str(file.readlink()))
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    states = {f"socket:[{line.split()[9]}]": line.split()[3] for line in lines}
    return {one for one in mine if states.get(one, LISTENS) != LISTENS}
