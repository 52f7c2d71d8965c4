"""The reservation file of a host: whoever is killed in the middle of a write harms nobody."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.agent.leases.book import Book, Refused, line_of, newest_line
from argosy.agent.processes.folder import boot_id

MANY = 400
KILLS = 25
SEED = 5
SECONDS = 60.0
WRITER = """
import sys
from argosy.agent.leases.book import Book
book = Book(sys.argv[1], sys.argv[2])
print(flush=True)
while True:
    with book.changed() as entries:
        count = max(one["count"] for one in entries.values()) + 1
        for one in entries.values():
            one["count"] = count
            one["group"] = "g" * (count % 50)
"""


def an_entry(**more) -> dict:
    return {"home": "/h", "boot": boot_id(), "indices": [], "cpus": 1.0, "memory_gib": 0.5,
            "count": 0, "group": "", **more}  # fmt: skip


def a_text(size: int, word: str) -> str:
    return json.dumps({f"{word}{place}": an_entry() for place in range(size)}, sort_keys=True)


def test_a_writer_that_is_killed_leaves_the_state_before_or_after(tmp_path):
    """Over and over, on a file of many pages; all entries are of one state."""
    book = Book(str(tmp_path / "book.json"), boot_id())
    with book.changed() as entries:
        entries.update({f"g.{place}": an_entry() for place in range(MANY)})
    chance, before = random.Random(SEED), 0
    for _ in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, book.path, book.boot], stdout=subprocess.PIPE
        )
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            signal.sigtimedwait([], chance.random() * 0.05)
        finally:
            writer.kill()
            writer.communicate(timeout=SECONDS)
        found = book.entries()
        assert len(found) == MANY
        (count,) = {one["count"] for one in found.values()}
        assert count >= before
        before = count
    assert before > KILLS


def test_every_part_of_an_append_leaves_the_line_before_it():
    old, new = line_of(a_text(40, "old")), line_of(a_text(50, "new"))
    for size in range(len(new)):
        for rest in (b"", bytes(len(new) - size)):
            found = newest_line(old + new[:size] + rest)
            assert found == (len(old), old[9:-1])
    assert newest_line(old + new) == (len(old + new), new[9:-1])


def test_every_part_of_the_copy_to_the_front_leaves_the_line_behind_it():
    front, new = line_of(a_text(50, "old")) * 2, line_of(a_text(40, "new"))
    for size in range(len(new)):
        mixed = new[:size] + front[size:] + new
        assert newest_line(mixed) == (len(mixed), new[9:-1])


def test_the_file_does_not_grow_with_its_changes(tmp_path):
    book = Book(str(tmp_path / "book.json"), boot_id())
    for place in range(100):
        with book.changed() as entries:
            entries[f"g.{place}"] = an_entry()
    with book.changed() as entries:
        entries.clear()
    assert book.entries() == {}
    assert os.path.getsize(book.path) == len(line_of("{}"))


@pytest.mark.parametrize("body", [b"", bytes(4096)])
def test_a_file_that_was_only_just_made_is_empty(tmp_path, body):
    """By whoever was killed before the first line, or of which a dead disk kept the size only."""
    path = tmp_path / "book.json"
    path.write_bytes(body)
    book = Book(str(path), boot_id())
    assert book.entries() == {}
    with book.changed() as entries:
        entries["g.1"] = an_entry()
    assert set(book.entries()) == {"g.1"}


@pytest.mark.parametrize("body", [b"{}\n", b"00000000 {}\n", b"x", line_of("[]"), line_of("{")])
def test_a_file_without_a_whole_line_is_an_error(tmp_path, body):
    path = tmp_path / "book.json"
    path.write_bytes(body)
    with pytest.raises(Refused) as caught:
        Book(str(path), boot_id()).entries()
    assert caught.value.code == "reservations"
    assert path.read_bytes() == body


def test_who_chooses_cards_keeps_servers_of_the_machine_from_choosing(tmp_path, monkeypatch):
    """Both files are locked meanwhile: that of leases, and that of servers on the machine."""
    servers = tmp_path / "gpus.json"
    monkeypatch.setattr("argosy.agent.leases.book.SERVERS_FILE", str(servers))
    book = Book(str(tmp_path / "book.json"), boot_id())
    probe = f"flock --nonblock {servers} true"
    with book.changed(cards=True) as entries:
        entries["g.1"] = an_entry()
        assert subprocess.run(probe, shell=True).returncode == 1
    assert subprocess.run(probe, shell=True).returncode == 0
    with book.changed():
        assert subprocess.run(probe, shell=True).returncode == 0
    assert Path(book.path).exists()


def test_a_file_that_is_read_only_is_not_taken_for_old(tmp_path):
    """A machine clears its folder of what nobody has touched for weeks."""
    book = Book(str(tmp_path / "book.json"), boot_id())
    with book.changed() as entries:
        entries["g.1"] = an_entry()
    os.utime(book.path, (1.0, 1.0))
    assert book.entries()
    assert os.stat(book.path).st_mtime > 1.0
