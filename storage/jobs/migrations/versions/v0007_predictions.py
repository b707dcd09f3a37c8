"""Adds the seconds and bytes that the plan of a job predicts, so that a runner for short jobs finds them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add two columns and an index.  Jobs that already wait get no prediction, so no short runner takes them."""
    op.add_column("jobs", sa.Column("predicted_seconds", sa.Float))
    op.add_column("jobs", sa.Column("predicted_memory", sa.BigInteger))
    op.create_index("jobs_by_prediction", "jobs", ["state", "predicted_seconds"])
