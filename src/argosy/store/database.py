"""Opening the database: the file, its settings, its schema; and its errors in our words.

SQLite with a write-ahead log: readers never wait for the writer. A new file gets the newest tables
at once; an older one is migrated by Alembic, which is imported only then.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError

from argosy.errors import AccessError, ArgosyError, Broken, InfraError
from argosy.store.tables import SCHEMA, metadata

BUSY_TIMEOUT_S: Final = 5.0  # how long another program may hold the file
WAL_MOST_BYTES: Final = 16 * 2**20  # the log is cut back to this after a checkpoint
LEAST_FREE_MIB: Final = 1.0  # below this an I/O error means a full disk
MIGRATIONS: Final = Path(__file__).parent / "migrations"


def make_file(path: Path) -> None:
    """Ensure that the file exists and that only its owner can read it: it holds secrets.

    Raises AccessError or InfraError. SQLite gives its side files the same mode.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path.parent))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise translated(error, path, opening=True) from error
        raise AccessError(
            f"the store {path} cannot be opened for writing: {error.strerror or error}",
            code="store/no-access",
            hint=f"make {path.parent} writable for this user, or set ARGOSY_HOME to another folder",
        ) from error


def reader(path: Path) -> Engine:
    """Connections that only read; each statement sees the newest commit."""
    return _engine(path, isolation_level="AUTOCOMMIT")


def writer(path: Path) -> Engine:
    """Connections whose transactions take the write lock at their beginning."""
    engine = _engine(path)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _engine(path: Path, **options: Any) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),  # a path may hold any sign
        pool_size=2,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        **options,
    )
    event.listen(engine, "connect", _settings)
    return engine


def _settings(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"journal_size_limit={WAL_MOST_BYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


# --- schema --------------------------------------------------------------------------------------


def bring_up_to_date(engine: Engine, path: Path) -> None:
    """Ensure that the tables have their newest form. Raises Broken, AccessError or InfraError."""
    try:
        with engine.begin() as connection:
            found = schema_of(connection)
            if found == SCHEMA:
                return
            if found is None:
                _create(connection)
            else:
                _migrate(connection, found, path)
    except (DBAPIError, OSError) as error:
        raise translated(error, path, opening=True) from error


def schema_of(connection: Connection) -> str | None:
    """The revision of the tables; None: the file is new."""
    names = inspect(connection).get_table_names()
    if "alembic_version" not in names:
        if names:
            raise Broken(
                f"{connection.engine.url.database} is a database of something else",
                code="store/foreign",
                hint="move that file away; the server makes a new one",
            )
        return None
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def _create(connection: Connection) -> None:
    """The newest tables in one go, marked as Alembic would mark them."""
    metadata.create_all(connection)
    connection.execute(
        text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(text("INSERT INTO alembic_version VALUES (:v)"), {"v": SCHEMA})


def _migrate(connection: Connection, found: str, path: Path) -> None:
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        ScriptDirectory(str(MIGRATIONS)).get_revision(found)
        upgrade(connection)
    except CommandError as error:
        raise Broken(
            f"the store {path} was written by a newer version of Argosy (schema {found})",
            code="store/newer",
            hint="install that version or a newer one, or set ARGOSY_HOME to another folder",
        ) from error


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run Alembic's steps on this connection, inside its transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


# --- errors --------------------------------------------------------------------------------------


def translated(error: BaseException, path: Path, *, opening: bool = False) -> ArgosyError:
    """An error of the database in our words; `opening`: the server cannot start without it."""
    cause = getattr(error, "orig", None) or error
    said = str(cause).lower()
    free = _free_mib(path)
    if "full" in said or "no space" in said or ("i/o error" in said and free < LEAST_FREE_MIB):
        return InfraError(
            f"the disk is full: the store {path} cannot be written ({free:.1f} MiB are free)",
            code="store/disk-full",
            hint=f"free some space on the disk of {path.parent}; running groups go on meanwhile",
            retry=5.0,
        )
    if "malformed" in said or "not a database" in said or "encrypted" in said:
        kind: type[ArgosyError] = Broken if opening else InfraError
        return kind(
            f"the store {path} is damaged: {cause}",
            code="store/broken",
            hint=(
                f"restore {path.name} from a backup, or move it away and start afresh",
                f"`sqlite3 {path} .recover` may save what is in it",
            ),
        )
    if "readonly" in said or "unable to open" in said or "permission" in said:
        return AccessError(
            f"the store {path} cannot be opened for writing: {cause}",
            code="store/no-access",
            hint=f"make {path.parent} and the files in it writable for this user",
        )
    if "locked" in said or "busy" in said:
        return InfraError(
            f"another program holds the store {path}",
            code="store/locked",
            hint=f"end what has it open; `fuser {path}` names it",
            retry=1.0,
        )
    return (Broken if opening else InfraError)(
        f"the store {path} failed: {cause}",
        code="store/failed",
        hint=f"see whether the disk of {path.parent} is healthy; `argosy server logs` tells more",
    )


def _free_mib(path: Path) -> float:
    """What is free on the disk of the store; infinity when nobody knows."""
    try:
        return shutil.disk_usage(path.parent).free / 2**20
    except OSError:
        return float("inf")
