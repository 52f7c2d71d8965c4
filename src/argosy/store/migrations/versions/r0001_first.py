"""The first form of the store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "meta",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "lives",
        sa.Column("life", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("life"),
    )
    _groups()
    _events()
    op.create_table(
        "leases",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "turns",
        sa.Column("infra", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("infra"),
    )
    op.create_index("turns_group", "turns", ["group_id"])


def _groups() -> None:
    op.create_table(
        "groups",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("unfinished", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("groups_name", "groups", ["name", "submitted_at"])
    op.create_index("groups_submitted", "groups", ["submitted_at"])
    op.create_index("groups_ended", "groups", ["ended_at"])
    op.create_index("groups_live", "groups", ["live", "submitted_at"])
    op.create_index("groups_unfinished", "groups", ["unfinished", "submitted_at"])
    op.create_table(
        "names",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("about", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_group", "events", ["group_id", "seq"])
