"""Volumes, and which groups use them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the two tables; older groups use no volume."""
    op.create_table(
        "volumes",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("infra", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("deleting", sa.Boolean(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "volume_uses",
        sa.Column("volume_id", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("volume_id", "group_id"),
    )
    op.create_index("volume_uses_group", "volume_uses", ["group_id"])
