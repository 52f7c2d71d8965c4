"""Migrations make the same tables that a new store gets at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from argosy.store import Store, database
from argosy.store.tables import SCHEMA, metadata


def form(path: Path) -> dict[str, Any]:
    """Every table's columns, key and indexes."""
    engine = database.reader(path)
    look = inspect(engine)
    found = {
        name: (
            [{**column, "type": str(column["type"])} for column in look.get_columns(name)],
            look.get_pk_constraint(name),
            sorted(_index(index) for index in look.get_indexes(name)),
        )
        for name in look.get_table_names()
    }
    engine.dispose()
    return found


def _index(index: Any) -> str:
    where = index.get("dialect_options", {}).get("sqlite_where", "")
    return f"{index['name']} {index['column_names']} {index['unique']} where {where}"


def migrated(path: Path) -> None:
    """A store made by the migrations alone."""
    engine = database.writer(path)
    with engine.begin() as connection:
        database.upgrade(connection)
    engine.dispose()


def test_migrations_and_tables_agree(tmp_path: Path) -> None:
    migrated(tmp_path / "old.db")
    Store.open(tmp_path / "new.db").close()
    assert form(tmp_path / "old.db") == form(tmp_path / "new.db")
    engine = database.reader(tmp_path / "old.db")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_a_migrated_store_can_be_used(tmp_path: Path) -> None:
    migrated(tmp_path / "store.db")
    store = Store.open(tmp_path / "store.db")
    assert store.open_life(7.0) == 7
    store.close()


def test_the_steps_are_one_line_that_ends_at_the_newest_schema() -> None:
    steps = ScriptDirectory(str(database.MIGRATIONS))
    assert steps.get_heads() == [SCHEMA]
    assert steps.get_bases() == ["0001"]
    for step in steps.walk_revisions():
        assert not hasattr(step.module, "downgrade"), "migrations go forward only"


def test_an_older_store_is_brought_up_to_date(tmp_path: Path) -> None:
    """A file that is marked as older runs Alembic, which finds its way from there."""
    path = tmp_path / "store.db"
    engine = database.writer(path)
    with engine.begin() as connection:
        database.upgrade(connection, "0001")
    database.bring_up_to_date(engine, path)
    with engine.connect() as connection:
        assert database.schema_of(connection) == SCHEMA
    engine.dispose()
