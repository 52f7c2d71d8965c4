"""A host of a pool that the user says is gone: replaced elsewhere, and ended when it is back."""

from __future__ import annotations

import json

import pytest

from tests.infra.ssh.person import Person, until

pytestmark = pytest.mark.ssh

WRITES = """name: writes
resources: {accelerators: 'H100:8'}
run: |
  while sleep 0.1; do date +%s.%N >> "/var/tmp/writes-$ARGOSY_ATTEMPT"; done
"""
BOOK = "tail -n 1 /var/tmp/argosy-leases.json 2>/dev/null | cut -d' ' -f2-"


def lines(person: Person, host: str, number: int) -> int:
    """How much that attempt has written."""
    return int(person.rig.on_host(host, f"cat /var/tmp/writes-{number} 2>/dev/null | wc -l"))


def rests(person: Person, host: str, other: str) -> bool:
    """Whether the first attempt writes nothing while the second one writes five lines."""
    first, second = lines(person, host, 1), lines(person, other, 2)
    until(lambda: lines(person, other, 2) >= second + 5, "the second attempt does not write")
    return lines(person, host, 1) == first


def begun(person: Person, number: int = 1) -> str:
    """Where that attempt runs, once it does."""

    def writes() -> str:
        node = person.nodes("writes")["writes-0"]
        if node["attempt"] != number or node["stage"] != "RUNNING" or not node["host"]:
            return ""
        file = f"/var/tmp/writes-{number}"
        return node["host"] if person.rig.on_host(node["host"], f"ls {file} || true") else ""

    until(writes, f"attempt {number} does not write")
    return person.nodes("writes")["writes-0"]["host"]


def lost(person: Person) -> list[str]:
    """The hosts of the pool that count as gone."""
    infras = json.loads(person.argosy("infra", "list", "-o", "json")[1])
    (lab,) = (one for one in infras if one["name"] == "ssh/lab")
    return [one["host"] for one in lab["lost"]]


@pytest.fixture
def tidy(person):
    """Nothing that the programs wrote stays on the hosts."""
    yield person
    for host in person.hosts:
        person.rig.on_host(host, "rm -f /var/tmp/writes-*")


def test_a_cut_host_is_replaced_on_the_users_word_and_ended_when_it_is_back(tidy):
    person = tidy
    code, out, err = person.launch(WRITES, "-d")
    assert code == 0, out + err
    host = begun(person)
    code, out, err = person.argosy("infra", "lost", host)
    assert (code, f"{host} of ssh/lab answers" in err) == (7, True), out + err
    person.rig.verb("cut", host)
    try:
        until(lambda: host in person.unreachable(), "it answers")
        assert person.nodes("writes")["writes-0"]["attempt"] == 1
        code, out, err = person.argosy("infra", "lost", host)
        assert code == 0, out + err
        other = begun(person, 2)
        assert other != host
        assert lost(person) == [host]
        assert not rests(person, host, other)  # nobody can tell it
        person.argosy("server", "stop")
        assert lost(person) == [host]
        assert person.nodes("writes")["writes-0"]["attempt"] == 2
    finally:
        person.rig.verb("heal", host)
    until(lambda: lost(person) == [], "it is not seen again")
    until(lambda: rests(person, host, other), "what was given up goes on")
    until(lambda: '"indices": [0' not in person.rig.on_host(host, BOOK), "its cards are held")
    assert person.nodes("writes")["writes-0"]["attempt"] == 2
    events = json.loads(person.argosy("events", "writes", "-o", "json")[1])
    assert {"host-lost", "host-back"} <= {one["code"] for one in events}


def test_a_dead_host_is_forgotten_and_its_notes_are_struck(tidy):
    person = tidy
    code, out, err = person.launch(WRITES, "-d")
    assert code == 0, out + err
    host = begun(person)
    notes = person.folder / "home" / "infra" / "ssh" / "lab" / host
    assert list(notes.iterdir())
    person.rig.verb("kill", "--silent", host)
    try:
        until(lambda: person.argosy("infra", "lost", host)[0] == 0, "it answers")
        begun(person, 2)
        code, out, err = person.argosy("infra", "forget", host)
        assert code == 0, out + err
        until(lambda: not list(notes.iterdir()), "its notes are there")
        assert lost(person) == []
        person.argosy("cancel", "writes", "--now", "--wait")
        assert person.group("writes")["unreachable"] == []
    finally:
        person.rig.verb("start", host)
