"""Adds the figures that runners report about themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a column, empty until a runner fills it."""
    with op.batch_alter_table("runners") as table:
        table.add_column(sa.Column("figures", sa.JSON))
