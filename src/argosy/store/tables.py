"""The tables of the store, and the number of their newest form.

A change here needs a migration in `migrations/versions/` and a new `SCHEMA`; a test compares what
both make.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

SCHEMA: Final = "0002"  # the newest revision

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", String, primary_key=True),  # "server_id", "lost-hosts"
    Column("value", Text, nullable=False),
)

lives = Table(
    "lives",
    metadata,
    Column("life", Integer, primary_key=True, autoincrement=False),
    Column("opened_at", Float, nullable=False),
)

groups = Table(
    "groups",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),  # the DNS form
    Column("submitted_at", Float, nullable=False),
    Column("ended_at", Float, nullable=False),  # 0: it has not ended
    Column("live", Boolean, nullable=False),  # its phase is not final: the name is taken
    Column("unfinished", Boolean, nullable=False),  # live, or something may be left of it
    Column("version", Integer, nullable=False),
    Column("record", Text, nullable=False),  # the group without its spec
    Column("spec", Text, nullable=False),  # never changed; holds the secrets
    Column("source", Text, nullable=False),  # the file as it was submitted
    Index("groups_name", "name", "submitted_at"),
    Index("groups_submitted", "submitted_at"),
    Index("groups_ended", "ended_at"),
    Index("groups_live", "live", "submitted_at"),
    Index("groups_unfinished", "unfinished", "submitted_at"),
)
# The names that live: a name is given once at a time, whoever writes.
names = Table(
    "names",
    metadata,
    Column("name", String, primary_key=True),
    Column("group_id", String, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),  # grows over all groups
    Column("group_id", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("code", String, nullable=False),
    Column("about", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Index("events_group", "group_id", "seq"),
    sqlite_autoincrement=True,  # a number is never given twice, deleted rows included
)

# Every lease id that was ever issued. Rows outlive their group: what bears such a mark may be
# released, and nothing else may.
leases = Table(
    "leases",
    metadata,
    Column("id", String, primary_key=True),
    Column("group_id", String, nullable=False),
)

turns = Table(
    "turns",
    metadata,
    Column("infra", String, primary_key=True),  # one gang at a time acquires there
    Column("group_id", String, nullable=False),
    Index("turns_group", "group_id"),
)

volumes = Table(
    "volumes",
    metadata,
    Column("name", String, primary_key=True),
    Column("id", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("infra", String, nullable=False),  # where the bytes are; "": not decided yet
    Column("host", String, nullable=False),
    Column("deleting", Boolean, nullable=False),
    Column("spec", Text, nullable=False),
)
# Which groups mount which volumes; rows go with their group.
volume_uses = Table(
    "volume_uses",
    metadata,
    Column("volume_id", String, primary_key=True),
    Column("group_id", String, primary_key=True),
    Index("volume_uses_group", "group_id"),
)
