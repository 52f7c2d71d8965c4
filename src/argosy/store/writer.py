"""The one thread that writes: what is queued is committed together.

A job is a function of a connection. It raises its ArgosyError (a conflict, say) before it writes
anything, so that the others of its batch are not touched. When the batch as a whole fails, it is
rolled back and each job is tried alone. An answer is given only after the commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from argosy.errors import ArgosyError, Unreachable
from argosy.store.database import translated
from argosy.store.reserve import Reserve
from argosy.store.room import Room

T = TypeVar("T")
BATCH_MOST: Final = 256  # jobs in one commit
QUIET_S: Final = 0.5  # nothing to write for so long: time to look after the room for a full disk


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One thing to write, and where its answer goes."""

    write: Callable[[Connection], Any]
    durable: bool  # it must survive a power failure once it is answered
    answer: Future[Any] = field(default_factory=Future)


class Writer:
    """Owns the writing connection; `close` writes what is queued and ends the thread."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._reserve = Reserve(path)
        self._room = Room(engine, path)
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def write(self, write: Callable[[Connection], T], *, durable: bool) -> T:
        """The answer of `write`, once it is committed. A cancelled caller's job may still run."""
        return await asyncio.wrap_future(self._submit(write, durable))

    def write_now(self, write: Callable[[Connection], T], *, durable: bool) -> T:
        """The same, for a caller without an event loop: waits."""
        return self._submit(write, durable).result()

    def close(self) -> None:
        """Write what is queued, then end. May be repeated."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _submit(self, write: Callable[[Connection], T], durable: bool) -> Future[T]:
        if self._closed:
            raise Unreachable(
                "the store is closed", code="store/closed", hint="start the server again"
            )
        job = Job(write, durable)
        self._queue.put(job)
        return job.answer

    def _run(self) -> None:
        ended = False
        self._reserve.keep()
        while not ended:
            taken = self._take()
            ended = None in taken
            jobs = [job for job in taken if job and job.answer.set_running_or_notify_cancel()]
            if jobs:
                self._commit(jobs)
                self._reserve.keep()

    def _take(self) -> list[Job | None]:
        """What is queued, at least one, at most a batch."""
        try:
            taken = [self._queue.get(timeout=QUIET_S)]
        except Empty:
            self._room.keep()
            taken = [self._queue.get()]
        while len(taken) < BATCH_MOST and taken[-1] is not None:
            try:
                taken.append(self._queue.get_nowait())
            except Empty:
                break
        return taken

    def _commit(self, jobs: list[Job]) -> None:
        try:
            answers = self._tried(jobs)
        except BaseException as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._commit([job])
                return
            answers = [self._explained(error)]
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, BaseException):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)

    def _tried(self, jobs: list[Job]) -> list[Any]:
        """The answers of a transaction; one that met a full disk is tried in the kept room."""
        try:
            return self._transaction(jobs)
        except (DBAPIError, OSError) as error:
            full = translated(error, self._path).code == "store/disk-full"
            if not full or not self._reserve.spend():
                raise
        return self._transaction(jobs)

    def _transaction(self, jobs: list[Job]) -> list[Any]:
        """Each job's value or ArgosyError; anything else undoes them all."""
        with self._engine.connect() as connection:
            self._synchronize(connection, full=any(job.durable for job in jobs))
            with connection.begin():
                return [self._one(job, connection) for job in jobs]

    def _one(self, job: Job, connection: Connection) -> Any:
        try:
            return job.write(connection)
        except ArgosyError as error:
            return error

    def _synchronize(self, connection: Connection, *, full: bool) -> None:
        """SQLite takes this outside of transactions only, so it goes past SQLAlchemy's."""
        if full != connection.info.get("full", False):
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}").close()
            connection.info["full"] = full

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, (DBAPIError, OSError)):
            explained = translated(error, self._path)
            explained.__cause__ = error
            return explained
        return error
