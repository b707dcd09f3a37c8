"""Adds the facts and the receipt of the file that each owner of a graph uploaded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add two columns.  They are filled for the first owner of a graph: the owner whose upload created the graph."""
    for name in ("facts", "receipt"):
        op.add_column("graph_owners", sa.Column(name, sa.JSON))
    op.execute(
        "UPDATE graph_owners SET (facts, receipt) = (SELECT graphs.facts, graphs.receipt FROM graphs"
        " WHERE graphs.id = graph_owners.graph AND graphs.created = graph_owners.created)"
    )
