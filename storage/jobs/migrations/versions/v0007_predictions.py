"""Adds what the plan of each job predicted, so that a short runner finds its jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add two columns and their index; jobs that wait during the migration get no prediction, so they are not short."""
    op.add_column("jobs", sa.Column("predicted_seconds", sa.Float))
    op.add_column("jobs", sa.Column("predicted_memory", sa.BigInteger))
    op.create_index("jobs_by_prediction", "jobs", ["state", "predicted_seconds"])
