"""The examples on real SSH hosts, launched as a person would."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.infra.ssh.person import Person, at_the_end, until
from tests.infra.ssh.rig import Rig, a_rig

pytestmark = pytest.mark.ssh

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# One for each program of `rl`: five of them listen at port 8000, and a host has one address.
HOSTS = tuple(f"host-{number}" for number in range(1, 8))
SHARED = "/srv/shared"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WITH_NUMPY = (
    "--env", f"PYTHON=/opt/python/bin/python{VERSION}", "--env", "PYTHONPATH=/opt/packages",
)  # fmt: skip


@pytest.fixture(scope="module")
def wide_rig() -> Iterator[Rig]:
    """Hosts that have this Python and its numpy, as if somebody had installed them there."""
    packages = Path(np.__file__).parents[1]
    lent = ("--lend", f"python={sys.base_prefix}", "--lend", f"packages={packages}")
    with a_rig("--hosts", str(len(HOSTS)), "--cpus", "1", "--share", *lent) as rig:
        yield rig


@pytest.fixture
def person(wide_rig: Rig, tmp_path: Path) -> Iterator[Person]:
    person = Person(wide_rig, tmp_path, HOSTS)
    yield from at_the_end(person)


def launch(person: Person, file: str, *words: str) -> tuple[int, str, str]:
    """Launch a file of the examples on the pool, and follow it."""
    words = ("launch", str(EXAMPLES / file), "-y", "--infra", "ssh/lab", *words)
    return person.argosy(*words, seconds=GROUP_SECONDS)


GROUP_SECONDS = 400.0  # for a group of the examples, on two slow cores


def test_hello(person):
    code, out, err = launch(person, "hello.yaml")
    assert code == 0, out + err
    assert "Hello alice, this is bob." in out
    assert "Hello bob, this is alice." in out


def on_shared(person: Person, file: str) -> str:
    """A copy of an example whose tasks have the folder that is the same on all hosts."""
    folder = person.folder / "example"
    shutil.copytree((EXAMPLES / file).parent, folder)
    path = folder / Path(file).name
    volume = f"volumes: {{shared: {{host_path: {SHARED}, type: nfs}}}}"
    # Programs of root on one host and of others on the next write the same files.
    text = path.read_text().replace("workdir: .", f"workdir: .\n{volume}")
    path.write_text(text.replace("run: exec", "run: umask 0; exec"))
    return str(path)


def shared_file(person: Person, name: str) -> Path | None:
    """A file of the group's shared folder, as this machine sees it; None: not there yet."""
    return next((person.rig.home / "shared").glob(f".argosy-*/**/{name}"), None)


def test_trainer_and_evaluator(person):
    """On two hosts: each takes one."""
    file = on_shared(person, "train-eval/group.yaml")
    code, out, err = launch(person, file, *WITH_NUMPY)
    assert code == 0, out + err
    accuracy = [line["accuracy"] for line in lines_of(person, "eval.jsonl")]
    assert accuracy[-1] > 0.9
    assert accuracy[-1] > accuracy[0]
    nodes = person.nodes("train-eval")
    assert len({node["host"] for node in nodes.values()}) == 2


def test_rl_learns_through_the_loss_of_its_trainer_and_then_of_the_trainers_host(person):
    """Each time it goes on from its newest checkpoint, and in the end it has learned."""
    file = on_shared(person, "rl/group.yaml")
    running = person.start("launch", file, "-y", "--infra", "ssh/lab", *WITH_NUMPY)
    until(lambda: steps(person) >= 100, "it does not learn", alive=running)
    code, out, err = person.argosy("chaos", "kill", "rl/trainer/0")
    assert code == 0, out + err
    before = steps(person)
    until(lambda: steps(person, attempt=2) >= before + 60, "no second attempt", alive=running)

    host = person.nodes("rl")["trainer-0"]["host"]
    boot_id = person.rig.on_host(host, BOOT_ID)
    person.rig.verb("kill", host)
    until(lambda: person.unreachable() == [host], "nobody misses the host")
    assert person.nodes("rl")["trainer-0"]["attempt"] == 2
    person.rig.verb("start", host)
    assert person.rig.on_host(host, BOOT_ID) != boot_id
    code, out, err = person.finish(running, GROUP_SECONDS)
    assert code == 0, out + err

    resumed = dict(re.findall(r"\[trainer-0@(\d)\] *attempt \d starts from step (\d+)", out))
    assert int(resumed["3"]) > int(resumed["2"]) >= 100, out
    (result,) = lines_of(person, "result.json")
    assert all(share >= 0.9 for share in result["test"].values())
    lines = lines_of(person, "metrics.jsonl")
    by_step = {line["step"]: line for line in sorted(lines, key=lambda line: line["attempt"])}
    assert sorted(by_step) == list(range(1, max(by_step) + 1))


BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def lines_of(person: Person, name: str) -> list[dict]:
    """The whole lines so far of a file of JSON in the shared folder."""
    file = shared_file(person, name)
    text = file.read_text() if file else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def steps(person: Person, attempt: int = 1) -> int:
    """The newest step of that attempt, or of a later one; 0 before the first."""
    lines = lines_of(person, "metrics.jsonl")
    found = [line["step"] for line in lines if line["attempt"] >= attempt]
    return found[-1] if found else 0
