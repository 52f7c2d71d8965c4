"""The log of an attempt: offsets, times, tails, caps, truncation, followers."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.agent.logs import own, search
from argosy.agent.logs.log import Change, Lines, Log, Record
from argosy.agent.logs.tailer import Tailer
from argosy.agent.loop import Loop
from argosy.infra.local import agent as starter
from argosy.spec.task import PATTERN_MOST


def append(path: Path, data: bytes, at: float | None = None) -> None:
    with open(path, "ab") as file:
        file.write(data)
    if at is not None:
        os.utime(path, (at, at))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "output"


def test_read_from_any_offset(path: Path) -> None:
    log = Log(str(path))
    append(path, b"\xff\x00 one\ntwo\r\n")
    assert log.poll().grew
    assert log.read(0) == (0, b"\xff\x00 one\ntwo\r\n")
    assert log.read(7, 3) == (7, b"two")
    assert log.read(99) == (99, b"")
    assert not log.poll().grew
    log.close()


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n", 5, b"a\nb\n"),
        (b"a\n", 0, b""),
        (b"", 3, b""),
        (b"x" * 200_000 + b"\nlast\n", 1, b"last\n"),
        (b"first\n" + b"x" * 1_000_000 + b"\n", 1, b"x" * 1_000_000 + b"\n"),
    ],
)
def test_tail(path: Path, text: bytes, lines: int, expected: bytes) -> None:
    log = Log(str(path))
    append(path, text)
    log.poll()
    start = log.offset_of_tail(lines)
    assert log.read(start, len(text) + 1)[1] == expected
    log.close()


def test_times_find_offsets(path: Path) -> None:
    log = Log(str(path))
    for number in range(10):
        append(path, b"line\n", at=1000.0 + 10 * number)
        log.poll()
    assert log.offset_since(1035.0) == 20  # what was there at 1030 is left out
    assert log.offset_until(1035.0) == 25
    assert log.offset_since(0.0) == 0
    assert log.offset_until(9999.0) == 50
    assert log.time_at(22) == 1040.0
    log.close()


def test_index_outlives_the_agent_and_a_torn_record(path: Path) -> None:
    log = Log(str(path))
    append(path, b"one\n", at=1000.0)
    log.poll()
    log.close()
    append(Path(f"{path}.index"), b"torn")
    append(path, b"two\n", at=2000.0)
    log = Log(str(path))
    assert log.end == 4
    log.poll()
    log.flush()
    assert [log.index[place] for place in range(len(log.index))] == [
        Record(4, 1000.0, 0, 0),
        Record(8, 2000.0, 0, 0),
    ]
    log.close()


def test_cap_frees_the_oldest_part_and_keeps_offsets(path: Path) -> None:
    log = Log(str(path), cap_bytes=1 << 20)
    line = b"%07d\n"
    total = 600_000
    capped = False
    with open(path, "ab", buffering=0) as file:
        for start in range(0, total, 10_000):
            file.write(b"".join(line % n for n in range(start, start + 10_000)))
            capped = log.poll().capped or capped
    assert capped
    assert log.end == total * 8
    assert 1 << 20 <= log.end - log.kept <= (1 << 20) + (1 << 18)
    assert path.stat().st_blocks * 512 <= (1 << 20) + (1 << 19)
    start, data = log.read(0, 8)
    assert (start, data) == (log.kept, line % (log.kept // 8))
    kept = log.kept
    log.close()
    again = Log(str(path), cap_bytes=1 << 20)
    assert (again.kept, again.end) == (kept, total * 8)
    again.close()


def test_program_that_empties_its_log_is_noticed(path: Path) -> None:
    log = Log(str(path))
    append(path, b"before\n")
    log.poll()
    with open(path, "w") as file:
        file.write("x\n")
    assert log.poll() == Change(grew=True, truncated=True)
    assert log.read(0) == (7, b"x\n")  # offsets go on growing
    assert log.end == 9
    log.close()


def test_log_emptied_and_refilled_beyond_the_old_end_is_noticed(path: Path) -> None:
    log = Log(str(path))
    append(path, b"before\n")
    log.poll()
    with open(path, "w") as file:
        file.write("something quite different\n")
    assert log.poll().truncated
    assert log.read(7)[1] == b"something quite different\n"
    log.close()


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"x", b"\n")), max_size=20),
    st.integers(min_value=5, max_value=40),
)
@settings(deadline=None)
def test_lines_lose_nothing(parts: list[bytes], longest: int) -> None:
    lines = Lines(longest)
    found = [line for part in parts for line in lines.feed(part)]
    for line in found:
        assert line.endswith(b"\n") or len(line) >= longest
        assert line.count(b"\n") <= 1
    assert b"".join(found) + lines.rest() == b"".join(parts)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.mark.parametrize("inotify", [True, False])
def test_follower_sees_all_that_is_written(loop: Loop, path: Path, inotify: bool) -> None:
    tailer = Tailer(loop, inotify=inotify)
    log = Log(str(path))
    tailer.add(log, lambda change: None)
    seen = bytearray()

    def more() -> None:
        while True:
            start, data = log.read(len(seen))
            if not data:
                return
            assert start == len(seen)
            seen.extend(data)

    assert tailer.follow(str(path), more)
    for number in range(3):
        written = b"%d\n" % number * 1000
        append(path, written)
        before = len(seen)
        deadline = loop.now() + 30
        while len(seen) < before + len(written):
            assert loop.now() < deadline
            loop.once(0.05)
        if number == 0:  # let it fall silent, so that the next one is told by inotify
            while inotify and tailer.busy():
                assert loop.now() < deadline
                loop.once(0.05)
    tailer.remove(str(path))
    assert not tailer.follow(str(path), more)
    assert re.fullmatch(rb"(0\n){1000}(1\n){1000}(2\n){1000}", bytes(seen))
    tailer.close()
    log.close()


def test_quiet_logs_cost_nothing(loop: Loop, tmp_path: Path) -> None:
    tailer = Tailer(loop)
    logs = [Log(str(tmp_path / f"output{number}")) for number in range(20)]
    for log in logs:
        tailer.add(log, lambda change: None)
    deadline = loop.now() + 30
    while tailer.busy():
        assert loop.now() < deadline
        loop.once(0.05)
    assert loop.idle()
    tailer.close()
    for log in logs:
        log.close()


def test_a_write_that_a_signal_cuts_short_is_finished(path: Path) -> None:
    reader, writer = os.pipe()
    cut, got = threading.Event(), list[bytes]()

    def read() -> None:
        assert cut.wait(60.0)
        while part := os.read(reader, 1 << 16):
            got.append(part)

    before = signal.signal(signal.SIGALRM, lambda *_: cut.set())
    thread = threading.Thread(target=read)
    thread.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # the pipe is full long before
        own.Capped(str(path), writer).write("x" * 300_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        os.close(writer)
        thread.join()
        os.close(reader)
    assert sum(map(len, got)) == 300_000


def test_the_agent_and_the_control_plane_mean_the_same_limits() -> None:
    """The agent imports nothing of the control plane, so these stand twice."""
    assert search.PATTERN_MAX == PATTERN_MOST
    assert own.MAX_BYTES == starter.LOG_MAX
    assert own.OLDER == starter.OLDER
