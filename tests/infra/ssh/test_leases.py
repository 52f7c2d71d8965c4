"""The desk of a host (`agent lease`) on the oldest Python: one file that all homes honour."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from argosy.agent.leases.book import line_of, newest_line
from argosy.infra.pack import packed_agent
from tests.pythons import oldest_python

LEASE = "gaa-1.1-1"
SECONDS = 60.0


def asked(lease: str = LEASE, **more) -> dict:
    """A `take` of one core."""
    group = lease.partition(".")[0]
    wanted = {"cpus": 1.0, "memory_gib": 0.0, "gpus": 0, "choices": []}
    return {"id": 1, "op": "take", "lease": lease, "group": group, "group_lease": f"{group}.0",
            "group_name": "g", **wanted, **more}  # fmt: skip


LOOK = {"id": 2, "op": "look"}


class Machine:
    """One reservation file, and homes beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.book = folder, folder / "book.json"
        self.agent = packed_agent(folder / "agent")

    def entries(self) -> dict:
        """What the file says."""
        found = newest_line(self.book.read_bytes())
        return json.loads(found[1]) if found else {}

    def say(self, home: str, *requests: dict, idle_exit: float = 0.1) -> list[dict]:
        """The hello and the answers of one desk."""
        place = self.folder / home
        agent = [oldest_python(), "-I", "-S", self.agent]
        options = ["--idle-exit", idle_exit, "--book", self.book]
        command = [*agent, "lease", "--home", place, *options]
        lines = "".join(json.dumps(one) + "\n" for one in requests)
        done = subprocess.run(
            [str(word) for word in command], input=lines, capture_output=True, text=True,
            timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def machine(tmp_path):
    """Afterwards the agents that leases have started have ended by themselves."""
    machine = Machine(tmp_path)
    yield machine
    deadline = time.monotonic() + SECONDS
    while left := [file for file in Path("/proc").glob("[0-9]*/cmdline") if names(file, tmp_path)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def names(file: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in file.read_bytes()
    except OSError:
        return False


def test_a_lease_is_taken_once_and_seen_by_later_lives_of_its_home_only(machine):
    hello, first, again = machine.say("mine", asked(), asked())
    assert first["lease"] == again["lease"]
    (_, seen) = machine.say("mine", LOOK)
    assert set(seen["leases"]) == {LEASE, "gaa-1.0"}
    assert seen["cpus"] == 1.0
    (_, others) = machine.say("other", LOOK)
    assert others["leases"] == {}
    assert others["cpus"] == 1.0
    assert others["holders"] == seen["holders"] == ["gaa-1.0", LEASE]
    assert seen["boot_id"] == hello["boot_id"]


def test_what_is_taken_is_refused_to_another_home_and_too_much_for_ever(machine):
    (hello,) = machine.say("mine")
    cores = hello["facts"]["cpus"]
    machine.say("mine", asked(cpus=cores))
    _, full, large = machine.say("other", asked("gbb-1.1-1"), asked("gbb-1.1-2", cpus=cores + 1))
    assert (full["error"], full["later"]) == ("full", True)
    assert (large["error"], large["later"]) == ("too-large", False)
    assert full["hint"]
    _, foreign = machine.say("other", asked())
    assert foreign["error"] == "foreign"


def test_what_was_leased_before_a_restart_takes_nothing_and_is_still_seen(machine):
    machine.say("mine", asked())
    entries = machine.entries()
    for one in entries.values():
        one["boot"] = "another"
    machine.book.write_bytes(line_of(json.dumps(entries)))
    (_, seen) = machine.say("mine", LOOK)
    assert (seen["cpus"], seen["holders"]) == (0, [])
    assert seen["leases"][LEASE]["boot"] != seen["boot_id"]


def test_a_damaged_file_is_an_error_and_never_an_empty_one(machine):
    machine.book.write_text('{"gaa-1.1-1": ')
    _, look, take = machine.say("mine", LOOK, asked())
    assert look["error"] == take["error"] == "reservations"
    assert machine.book.read_text() == '{"gaa-1.1-1": '


def test_what_a_killed_writer_left_behind_the_line_is_passed_over(machine):
    machine.say("mine", asked())
    with machine.book.open("a") as file:
        file.write('01234567 {"cpus": 1.0}}\n')
    (_, seen) = machine.say("mine", LOOK)
    assert LEASE in seen["leases"]


def test_release_of_another_home_is_silent(machine):
    machine.say("mine", asked())
    _, answer = machine.say("other", {"id": 3, "op": "release", "lease": LEASE})
    assert answer == {"id": 3, "there": False}
    (_, seen) = machine.say("mine", LOOK)
    assert LEASE in seen["leases"]


def test_a_released_lease_goes_though_nobody_waits_for_it(machine):
    machine.say("mine", asked())
    machine.say("mine", {"id": 3, "op": "release", "lease": LEASE})
    deadline = time.monotonic() + SECONDS
    while LEASE in machine.say("mine", LOOK)[1]["leases"]:
        assert time.monotonic() < deadline
    machine.say("mine", {"id": 4, "op": "release", "lease": "gaa-1.0"})
    while machine.say("mine", LOOK)[1]["leases"]:
        assert time.monotonic() < deadline
    assert machine.entries() == {}


def test_leases_that_are_released_together_all_go_though_no_agent_runs(machine):
    """Each release may have to start the agent, beside the others."""
    leases = [f"gaa-1.1-{number}" for number in range(1, 5)]
    machine.say("mine", *(asked(lease, cpus=0.0) for lease in leases))
    deadline = time.monotonic() + SECONDS
    while (machine.folder / "mine" / "agent.sock").exists():
        assert time.monotonic() < deadline, "the agent, which holds nothing, does not end"
        time.sleep(0.02)
    (machine.folder / "mine" / "journal").touch()  # as if something had run
    releases = [{"id": 3, "op": "release", "lease": lease} for lease in leases]
    machine.say("mine", *releases, idle_exit=5.0)  # it waits until all have asked it
    while left := set(leases) & machine.say("mine", LOOK)[1]["leases"].keys():
        assert time.monotonic() < deadline, left
