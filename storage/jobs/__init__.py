"""The job database."""
