"""Creates the tables as they were before migrations were introduced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables of graphs and jobs."""
    op.create_table(
        "graphs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("digest", sa.String(80), nullable=False, unique=True),
        sa.Column("name", sa.String(200)),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("m", sa.BigInteger, nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.Column("receipt", sa.JSON, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("graph", sa.String(40), sa.ForeignKey("graphs.id"), nullable=False),
        sa.Column("name", sa.String(200)),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("phase", sa.String(60), nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("runner", sa.String(120)),
        sa.Column("heartbeat", sa.Float),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("progress", sa.JSON, nullable=False),
        sa.Column("error", sa.JSON),
        sa.Column("history", sa.JSON, nullable=False),
        sa.Column("seconds", sa.JSON),
        sa.Column("summary", sa.JSON),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("finished", sa.Float),
        sa.Column("updated", sa.Float, nullable=False),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "created"])
