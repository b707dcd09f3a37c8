"""The migrations of the job database; when an older database is opened, alembic runs those that it lacks."""
