"""The writing thread: what is queued is committed together, and answered one by one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from argosy.errors import Conflict, Unreachable
from argosy.store import database
from argosy.store.writer import Writer

pytestmark = pytest.mark.anyio
NORMAL, FULL = 1, 2


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    path = tmp_path / "store.db"
    engine = database.writer(path)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)"))
    made = Writer(engine, path)
    yield made
    made.close()
    engine.dispose()


def adding(number: int) -> Callable[[Connection], int]:
    def write(connection: Connection) -> int:
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
        return number

    return write


def numbers(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT n FROM numbers ORDER BY n")).scalars())


def synchronous(connection: Connection) -> object:
    return connection.execute(text("PRAGMA synchronous")).scalar()


async def test_only_durable_commits_wait_for_the_disk(writer: Writer) -> None:
    for durable, expected in ((True, FULL), (False, NORMAL), (True, FULL), (True, FULL)):
        assert await writer.write(synchronous, durable=durable) == expected


async def test_one_durable_job_makes_its_whole_batch_durable(writer: Writer) -> None:
    free = threading.Event()
    first = asyncio.ensure_future(writer.write(lambda _: free.wait(), durable=False))
    await asyncio.sleep(0)
    batch = [
        asyncio.ensure_future(writer.write(synchronous, durable=durable))
        for durable in (False, True, False)
    ]
    await asyncio.sleep(0)
    free.set()
    await first
    assert await asyncio.gather(*batch) == [FULL, FULL, FULL]


async def test_a_failing_job_hurts_no_other_of_its_batch(writer: Writer) -> None:
    free = threading.Event()
    first = asyncio.ensure_future(writer.write(lambda _: free.wait(), durable=False))
    await asyncio.sleep(0)

    def refusing(_: Connection) -> None:
        raise Conflict("no")

    def failing(connection: Connection) -> None:
        adding(99)(connection)
        raise ZeroDivisionError

    jobs: list[Callable[[Connection], object]] = [
        adding(1),
        refusing,
        adding(2),
        failing,
        adding(1),
        adding(3),
    ]
    batch = [asyncio.ensure_future(writer.write(job, durable=False)) for job in jobs]
    await asyncio.sleep(0)
    free.set()
    await first
    answers = await asyncio.gather(*batch, return_exceptions=True)
    assert answers[0] == 1
    assert isinstance(answers[1], Conflict)
    assert answers[2] == 2
    assert isinstance(answers[3], ZeroDivisionError)
    assert isinstance(answers[4], Exception)  # 1 is there already
    assert answers[5] == 3
    assert await writer.write(numbers, durable=False) == [1, 2, 3]


async def test_a_job_whose_caller_left_before_its_turn_is_dropped(writer: Writer) -> None:
    began, free = threading.Event(), threading.Event()

    def held_up(_: Connection) -> bool:
        began.set()
        return free.wait()

    first = asyncio.ensure_future(writer.write(held_up, durable=False))
    await asyncio.to_thread(began.wait)
    left = asyncio.ensure_future(writer.write(adding(1), durable=False))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    free.set()
    await first
    assert await writer.write(numbers, durable=False) == []


def test_a_closed_writer_takes_nothing(writer: Writer) -> None:
    writer.close()
    with pytest.raises(Unreachable):
        writer.write_now(numbers, durable=False)
