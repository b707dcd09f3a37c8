"""Adds owners, priorities, places in the queue, leases, versions, fingerprints, removals, idempotency keys, runners."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add columns, indexes and two tables; no existing row is rewritten."""
    op.add_column("graphs", sa.Column("removed", sa.Float))
    for name, kind in (("priority", sa.Integer), ("turn", sa.BigInteger), ("beat", sa.BigInteger)):
        op.add_column("jobs", sa.Column(name, kind, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("version", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("device", sa.String(8), nullable=False, server_default="any"))
    for name, length in (("owner", 80), ("fingerprint", 80), ("removal", 12)):
        op.add_column("jobs", sa.Column(name, sa.String(length)))
    op.add_column("jobs", sa.Column("bytes", sa.BigInteger))
    op.add_column("jobs", sa.Column("removed", sa.Float))
    op.create_index("jobs_by_turn", "jobs", ["state", "priority", "turn", "id"])
    op.create_index("jobs_by_owner", "jobs", ["owner", "state"])
    op.create_index("jobs_by_fingerprint", "jobs", ["fingerprint"])
    op.create_index("jobs_by_graph", "jobs", ["graph", "state"])
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.String(80), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("job", sa.String(40), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "runners",
        sa.Column("slot", sa.String(120), primary_key=True),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("device", sa.String(20), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("detail", sa.String(500)),
        sa.Column("heartbeat", sa.Float, nullable=False),
    )
