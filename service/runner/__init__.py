"""Processes that solve jobs, and the supervisor that keeps them alive."""
