"""The script that alembic runs: it executes the pending migrations in the open transaction of a given connection."""

from __future__ import annotations

from alembic import context

from storage.jobs.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
