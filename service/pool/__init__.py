"""Helper processes of the API, which read graphs, plan jobs and check long bodies."""
