"""The history of the job database's tables, run by alembic at start."""
