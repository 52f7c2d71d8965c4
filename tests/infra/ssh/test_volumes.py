"""Volumes on real SSH hosts: on one host of a pool, the same on all, or as long as a group."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.ssh.person import Person, at_the_end, until
from tests.infra.ssh.rig import Rig, a_rig

pytestmark = pytest.mark.ssh

HOSTS = ("host-1", "host-2")
GPUS = "host-1=1:H100,host-2=1:H100"
FIND = "find /root /home -path '*/volumes/*' -type f 2>/dev/null || true"


@pytest.fixture(scope="module")
def shared_rig() -> Iterator[Rig]:
    """host-1 lets root in, host-2 only `worker`; /srv/shared is one folder, mounted on both."""
    with a_rig("--hosts", "2", "--share", "--gpus", GPUS) as rig:
        yield rig


@pytest.fixture
def person(shared_rig: Rig, tmp_path: Path) -> Iterator[Person]:
    yield from at_the_end(Person(shared_rig, tmp_path, HOSTS))


def volumes(person: Person) -> dict[str, dict]:
    return {
        one["name"]: one for one in json.loads(person.argosy("volumes", "list", "-o", "json")[1])
    }


def test_one_folder_on_all_hosts_is_what_a_group_shares(person: Person) -> None:
    """Programs of root on one host and of another user on the next see each other's files."""
    text = """name: both
execution: parallel
---
name: writer
resources: {accelerators: 'H100:1'}
volumes: {/shared: share}
run: |
  echo "$ARGOSY_SHARED_DIR"; umask 0; echo hello > "$ARGOSY_SHARED_DIR/word"
---
name: reader
resources: {accelerators: 'H100:1'}
volumes:
  data: {host_path: /srv/shared, type: nfs}
  sealed: {host_path: /srv/shared, read_only: true}
run: |
  for i in $(seq 300); do [ -s "$ARGOSY_SHARED_DIR/word" ] && break; sleep 0.1; done
  cat "$ARGOSY_SHARED_DIR/word"; echo x > sealed/x || echo refused
"""
    words = ("--type", "nfs", "--host-path", "/srv/shared")
    assert person.argosy("volumes", "create", "share", *words)[0] == 0
    code, out, err = person.launch(text)
    assert code == 0, out + err
    assert {node["host"] for node in person.nodes("both").values()} == set(HOSTS)
    words = [line.split("] ", 1)[-1] for line in out.splitlines()]
    assert "hello" in words
    assert "refused" in words
    assert any(word.startswith("/shared/.argosy-") for word in words)
    assert "ARGOSY_SHARED_DIR is not set" not in err
    shared = person.rig.home / "shared"
    assert list(shared.glob(".argosy-*"))
    assert person.argosy("rm", "both")[0] == 0
    until(lambda: not list(shared.iterdir()), "something is left in the shared folder")
    (shared / "file").write_text("stays")
    assert person.argosy("volumes", "delete", "share", "-y")[0] == 0
    assert (shared / "file").read_text() == "stays"
    (shared / "file").unlink()


def test_without_it_a_group_on_two_hosts_has_no_shared_folder(person: Person) -> None:
    text = """name: apart
num_nodes: 2
resources: {accelerators: 'H100:1'}
run: echo "it is ${ARGOSY_SHARED_DIR:-not set}"
"""
    code, out, err = person.launch(text)
    assert code == 0, out + err
    assert out.count("it is not set") == 2
    assert "apart: $ARGOSY_SHARED_DIR is not set" in err
    code, out, err = person.launch(text.replace("num_nodes: 2", "num_nodes: 1"))
    assert "it is /" in out


WRITE = """name: first
resources: {accelerators: 'H100:1'}
volumes: {data: data, scratch: {size: 1Gi}}
run: |
  echo kept > data/file; echo gone > scratch/file; while [ ! -e data/stop ]; do sleep 0.1; done
"""
READ = """name: second
num_nodes: NODES
volumes: {/tmp/argosy-test/point: {name: data, read_only: true}}
run: cat /tmp/argosy-test/point/file; touch /tmp/argosy-test/point/x || echo refused
"""


def test_a_volume_is_where_it_was_used_first(person: Person) -> None:
    """Whoever mounts it goes there; it is not deleted while it is used, and then is gone."""
    assert person.argosy("volumes", "create", "data", "--infra", "ssh/lab")[0] == 0
    assert volumes(person)["data"]["host"] == ""
    code, out, err = person.launch(WRITE, "-d")
    assert code == 0, out + err
    until(lambda: person.group("first")["phase"] == "RUNNING", "it does not run")
    host = person.nodes("first")["first-0"]["host"]
    assert volumes(person)["data"]["host"] == host
    assert volumes(person)["data"]["used_by"] == ["first"]
    until(lambda: len(person.rig.on_host(host, FIND).split()) == 2, "it does not write")

    code, _, err = person.argosy("volumes", "delete", "data", "-y")
    assert code == 7
    assert "in use by first" in err
    code, out, err = person.launch(READ.replace("NODES", "3"))
    assert code == 0, out + err
    assert {node["host"] for node in person.nodes("second").values()} == {host}
    assert out.count("kept") == out.count("refused") == 3
    code, _, err = person.launch(READ.replace("NODES", "1").replace("data,", "daat,"))
    assert code == 3
    assert "did you mean 'data'?" in err

    (found,) = [one for one in person.rig.on_host(host, FIND).split() if "data-" in one]
    person.rig.on_host(host, f"touch {Path(found).parent}/stop")
    until(lambda: person.group("first")["phase"] == "SUCCEEDED", "it does not end")
    until(lambda: not volumes(person)["data"]["used_by"], "it is used for ever")
    assert sorted(map(name, person.rig.on_host(host, FIND).split())) == ["file", "stop"]
    assert person.rig.on_host(host, "ls -d /tmp/argosy-test 2>/dev/null || true") == ""
    code, out, err = person.argosy("volumes", "delete", "data", "-y")
    assert code == 0, out + err
    assert person.rig.on_host(host, FIND) == ""
    assert volumes(person) == {}


HOLD = """name: hold
resources: {accelerators: 'H100:1'}
volumes: {data: data}
run: while :; do date >>data/file; sleep 0.1; done
"""


def test_one_that_a_host_out_of_sight_may_use_is_not_deleted(person: Person) -> None:
    """Though its group has ended; and the group is kept that says so."""
    assert person.argosy("volumes", "create", "data", "--infra", "ssh/lab")[0] == 0
    code, out, err = person.launch(HOLD, "-d")
    assert code == 0, out + err
    until(lambda: person.group("hold")["phase"] == "RUNNING", "it does not run")
    host = person.nodes("hold")["hold-0"]["host"]
    person.rig.verb("cut", host)
    assert person.argosy("cancel", "hold", "--now")[0] in (0, 103)
    until(lambda: person.group("hold")["phase"] == "CANCELLED", "it does not end")
    code, _, err = person.argosy("rm", "hold")
    assert code == 7, err
    assert "may be left that uses the volume 'data'" in err
    assert person.argosy("volumes", "delete", "data", "-y")[0] == 7
    assert "file" in person.rig.on_host(host, FIND)
    code, out, err = person.argosy("infra", "forget", host)
    assert code == 0, out + err
    until(lambda: person.argosy("rm", "hold")[0] == 0, "it is kept for ever")
    person.rig.verb("heal", host)
    code, out, err = person.argosy("volumes", "delete", "data", "-y")
    assert code == 0, out + err
    assert person.rig.on_host(host, FIND) == ""


def name(path: str) -> str:
    return path.rpartition("/")[2]


def test_what_is_not_on_the_host_ends_the_group_with_words(person: Person) -> None:
    text = "name: missing\nvolumes: {/d: {host_path: /srv/nothing}}\nrun: true\n"
    code, _, err = person.launch(text)
    assert code == 100, err
    assert "/srv/nothing is not there on this host" in err
    text = "name: unmounted\nvolumes: {d: {host_path: /var/tmp, type: nfs}}\nrun: true\n"
    code, _, err = person.launch(text)
    assert code == 100, err
    assert "nothing is mounted at" in err
