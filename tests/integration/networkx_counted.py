"""A pytest plugin: at the end, say how often each function of the backend ran here."""

from engine.interop.networkx import CALLS


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"calls: {dict(CALLS)}")
