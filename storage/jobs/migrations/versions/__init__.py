"""The migrations in order, a module for each; a module names the migration before it."""
