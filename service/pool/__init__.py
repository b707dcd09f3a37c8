"""Processes beside the API that read graphs, plan jobs and check long bodies."""
