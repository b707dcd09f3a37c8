"""Adds keys of callers, and the owners of graphs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add two tables; existing tables are unchanged."""
    op.create_table(
        "keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("revoked", sa.Float),
    )
    op.create_table(
        "graph_owners",
        sa.Column("owner", sa.String(80), primary_key=True),
        sa.Column("graph", sa.String(40), sa.ForeignKey("graphs.id"), primary_key=True),
        sa.Column("name", sa.String(200)),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_index("graph_owners_by_graph", "graph_owners", ["graph"])
