"""The examples on a real cluster, launched as a person would."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.kubernetes.person import INFRA, Person
from tests.infra.kubernetes.rig import ROOT, until

pytestmark = pytest.mark.kubernetes

EXAMPLES = ROOT / "examples"
GROUP_SECONDS = 600.0  # for a group of the examples, on two slow cores


def launch(person: Person, file: str | Path) -> tuple[int, str, str]:
    """Launch a file of the examples on the cluster, and follow it."""
    words = ("launch", str(EXAMPLES / file), "-y", "--infra", INFRA)
    return person.argosy(*words, seconds=GROUP_SECONDS)


def test_hello(person):
    code, out, err = launch(person, "hello.yaml")
    assert code == 0, out + err
    assert "Hello alice, this is bob." in out
    assert "Hello bob, this is alice." in out


@pytest.fixture
def shared(person: Person, tmp_path: Path) -> Iterator[Path]:
    """A folder that pods claim, all at once: a volume of the cluster, which is one machine."""
    (tmp_path / "shared").mkdir()
    rig, name = person.space.rig, person.space.name
    rig.apply(
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
                "storageClassName": name, "hostPath": {"path": str(tmp_path / "shared")},
            },
        }
    )  # fmt: skip
    yield tmp_path
    rig.kubectl("delete", "persistentvolume", name, "--wait=false")


def on_shared(person: Person, folder: Path, file: str) -> Path:
    """A copy of an example whose tasks claim that volume together, as long as the group lives."""
    shutil.copytree((EXAMPLES / file).parent, folder / "example")
    path = folder / "example" / Path(file).name
    config = f"{{access_mode: ReadWriteMany, storage_class_name: {person.space.name}}}"
    claim = f"{{name: shared, size: 1Gi, type: k8s-pvc, config: {config}}}"
    text = path.read_text()
    path.write_text(text.replace("workdir: .", f"workdir: .\nvolumes: {{/shared: {claim}}}"))
    return path


def test_trainer_and_evaluator(person, shared):
    """Each in a pod of its own."""
    code, out, err = launch(person, on_shared(person, shared, "train-eval/group.yaml"))
    assert code == 0, out + err
    accuracy = [line["accuracy"] for line in lines_of(shared, "eval.jsonl")]
    assert accuracy[-1] > 0.9
    assert accuracy[-1] > accuracy[0]


def test_rl_learns_through_the_loss_of_its_trainer_and_then_of_the_trainers_node(person, shared):
    """Each time it goes on from its newest checkpoint, and in the end it has learned."""
    rig, file = person.space.rig, on_shared(person, shared, "rl/group.yaml")
    running = person.start("launch", str(file), "-y", "--infra", INFRA)
    until(lambda: steps(shared) >= 100, "it does not learn", GROUP_SECONDS)
    person.did("chaos", "kill", "rl/trainer/0")
    before = steps(shared)
    until(lambda: steps(shared, 2) >= before + 60, "no second attempt", GROUP_SECONDS)

    node = person.space.pods()["trainer-0"]["spec"]["nodeName"]
    rig.verb("node", "kill", "--silent", node)
    try:
        until(lambda: steps(shared, 3) > 0, "it does not go on elsewhere", GROUP_SECONDS)
    finally:
        rig.restore(node)
    out, err = running.communicate(timeout=GROUP_SECONDS)
    assert running.returncode == 0, out + err

    resumed = dict(re.findall(r"\[trainer-0@(\d)\] *attempt \d starts from step (\d+)", out))
    assert int(resumed["3"]) > int(resumed["2"]) >= 100, out
    (result,) = lines_of(shared, "result.json")
    assert all(share >= 0.9 for share in result["test"].values())
    lines = lines_of(shared, "metrics.jsonl")
    by_step = {line["step"]: line for line in sorted(lines, key=lambda line: line["attempt"])}
    assert sorted(by_step) == list(range(1, max(by_step) + 1))


def lines_of(folder: Path, name: str) -> list[dict]:
    """The whole lines so far of a file of JSON in the shared folder."""
    file = next((folder / "shared").glob(f".argosy-*/**/{name}"), None)
    text = file.read_text() if file else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def steps(folder: Path, attempt: int = 1) -> int:
    """The newest step of that attempt, or of a later one; 0 before the first."""
    lines = lines_of(folder, "metrics.jsonl")
    found = [line["step"] for line in lines if line["attempt"] >= attempt]
    return found[-1] if found else 0
