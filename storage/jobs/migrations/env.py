"""The script that alembic runs: it makes the pending changes on the given connection, in its open transaction."""

from __future__ import annotations

from alembic import context

from storage.jobs.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
