"""How fast a group of five starts and ends on a cluster, beside the five bare pods that `kubectl`
makes of the same command; a killed process, and a killed node.

    python benchmarks/kubernetes.py [--quick]     as root: the cluster is the rig's, on this machine

Programs are the same, image and markers too: the folder of the markers is a `hostPath` in all pods.
Cluster and programs share the cores here. A round of ours ends when no pod of it is left, as that
of `kubectl delete --wait` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from home import Home, group_text, until
from marks import SERVICE, Marks, now
from measure import ROOT, Budget, Options, Ratio, Row, Spread, alone, load
from noticing import RESTART, Killing

sys.path.insert(0, str(ROOT))

from tests.infra.kubernetes.person import INFRA, config
from tests.infra.kubernetes.rig import IMAGE, Namespace, a_namespace, a_rig

BARE = "five bare pods"
CPUS = 0.1
RESOURCES = f"resources: {{infra: {INFRA}, cpus: {CPUS}}}"
GRACE = 30  # seconds, as both have it: nobody needs them
BUDGET_LAUNCH = Budget("<= 1.5x kubectl apply", ratio=Ratio(BARE, 1.5, margin=1.5))
BUDGET_END = Budget("<= 1.3x kubectl delete", ratio=Ratio(BARE, 1.3, margin=2.0))
BUDGET_SEEN = Budget("p99 <= 100 ms", 100.0, 100.0)
BUDGET_REPLACED = Budget("<= 15 s", 15.0)
GPUS = "node-1=8:NVIDIA-H100-80GB-HBM3"


@dataclass(frozen=True)
class Place:
    """A home whose context is a namespace of the rig."""

    home: Home
    space: Namespace

    def ours(self) -> tuple[float, float]:
        """Seconds to the last marker, and from `cancel` until no pod is left."""
        marks = Marks(self.home.folder)
        file = self.home.file("group", group_text("group", marks, RESOURCES))
        began = now()
        group = self.home.launch(file)
        took = marks.last() - began
        self.home.running(group)
        began = now()
        self.home.client.cancel(group)
        self.home.client.wait(group)
        self.kubectl("wait", "--for=delete", "pods", "-l", f"argosy.dev/group={group}")
        return took, now() - began

    def bare(self) -> tuple[float, float]:
        """The same of bare pods."""
        marks = Marks(self.home.folder)
        pods = [_bare_pod(name, marks, self.home.folder) for name in marks.names]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        began = now()
        self.kubectl("apply", "-f", "-", given=text)
        took = marks.last() - began
        began = now()
        self.kubectl("delete", "-f", "-", "--wait=true", given=text)
        return took, now() - began

    def kubectl(self, *words: str, given: str = "") -> None:
        """As whoever the server is, without the rig's own start."""
        argv = ["kubectl", "--kubeconfig", str(self.space.kubeconfig), *words]
        subprocess.run([str(KUBE), *argv], input=given, text=True, check=True, capture_output=True)


KUBE = Path.home() / ".cache" / "kuberig" / "kube"


def _mounts(folder: Path) -> dict[str, Any]:
    """What lets a pod write markers here, as a part of its spec."""
    paths = {"marks": str(folder), "service": str(SERVICE.parent)}
    return {
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()],
        "containers": [
            {"volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()]}
        ],
    }


def _bare_pod(name: str, marks: Marks, folder: Path) -> dict[str, Any]:
    spec = _mounts(folder)
    spec["containers"][0] |= {
        "name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": marks.argv(name), "resources": {"requests": {"cpu": str(CPUS)}},
    }  # fmt: skip
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": f"{marks.folder.name}-{name}", "labels": {"bare": "true"}},
        "spec": spec,
    }  # fmt: skip


@contextmanager
def a_place() -> Iterator[Place]:
    """A rig of three nodes, a namespace, a home."""
    with ExitStack() as stack:
        rig = stack.enter_context(a_rig("--nodes", "3", "--gpus", GPUS))
        scratch = stack.enter_context(Home())
        space = stack.enter_context(a_namespace(rig, scratch.folder))
        home = stack.enter_context(Home())
        text = yaml.safe_dump(config(space, pod_config={"spec": _mounts(home.folder)}))
        (home.path / "config.yaml").write_text(text)
        yield Place(home, space)


def five(options: Options) -> Iterator[Row]:
    """The group that is used everywhere, of a loaded image."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], BARE: []}
    with a_place() as place:
        contestants: dict[str, Callable[[], tuple[float, float]]] = {
            "ours": place.ours,
            BARE: place.bare,
        }
        for contestant in contestants.values():
            contestant()  # warm
        for turn in range(options.rounds(12)):
            for name in (list(contestants) * 2)[turn % 2 : turn % 2 + 2]:
                found[name].append(contestants[name]())
    parts = (("group of 5 on a cluster: launch", BUDGET_LAUNCH),
             ("group of 5 on a cluster: stop", BUDGET_END))  # fmt: skip
    for index, (what, budget) in enumerate(parts):
        spreads = {name: Spread(tuple(v[index] for v in values)) for name, values in found.items()}
        ours = spreads.pop("ours")
        yield Row(what, ours, "s", budget, spreads, load())


def killed(options: Options) -> Iterator[Row]:
    """kill -9 of a program in a pod: until the event is at a client that follows."""
    with a_place() as place:
        killing = Killing(place.home, f"{RESTART}\n{RESOURCES}")
        rounds = [killing.once() for _ in range(options.rounds(25))]
        place.home.end(killing.group)
    seen, back = (Spread(tuple(one[index] for one in rounds)) for index in (0, 1))
    what = "kill -9 in a pod"
    yield Row(f"{what}, to event at a client", seen, "ms", BUDGET_SEEN, {}, load(), 1000.0)
    yield Row(f"{what}, to the marker", back, "ms", Budget("none"), {}, load(), 1000.0)


def node(options: Options) -> Iterator[Row]:
    """A node loses its power: from its pods being given up to the marker of the replacement."""
    known, replaced = [], []
    with a_place() as place:
        marks = Marks(place.home.folder)
        text = group_text("node", marks, f"{RESTART}\n{RESOURCES}")
        group = place.home.launch(place.home.file("node", text))
        marks.read()
        place.home.running(group)
        for _ in range(options.rounds(3)):
            to_given_up, to_marker = _one_node(place, marks)
            known.append(to_given_up)
            replaced.append(to_marker)
            place.home.running(group)
        place.home.end(group)
        until(lambda: not place.space.ours(), "nothing of the group is left")
    what = "killed node of a cluster"
    yield Row(f"{what}: pods given up", Spread(tuple(known)), "s", Budget("none"), {}, load())
    yield Row(f"{what}: given up to replaced", Spread(tuple(replaced)), "s", BUDGET_REPLACED, {},
              load())  # fmt: skip


def _one_node(place: Place, marks: Marks) -> tuple[float, float]:
    """Seconds until the pod of `trainer` was given up, and from then to its next marker."""
    rig, pod = place.space.rig, place.space.pods()["trainer-0"]
    name, host = pod["metadata"]["name"], pod["spec"]["nodeName"]
    lost = [one for one, pod in place.space.pods().items() if pod["spec"]["nodeName"] == host]
    for one in lost:
        (marks.folder / one.removesuffix("-0")).unlink()
    began = now()
    rig.verb("node", "kill", "--silent", host)
    try:
        until(lambda: _given_up(place, name), f"{name} is given up")
        given_up = now()
        marker = marks.read()["trainer"]
        return given_up - began, marker - given_up
    finally:
        rig.restore(host)


def _given_up(place: Place, name: str) -> bool:
    found = [one for one in place.space.get("pods")["items"] if one["metadata"]["name"] == name]
    return not found or "deletionTimestamp" in found[0]["metadata"]


LINES = (five, killed, node)

if __name__ == "__main__":
    alone(LINES, __doc__)
