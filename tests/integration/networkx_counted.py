"""A pytest plugin that prints, after the tests, how often each function of the NetworkX backend was called."""

import os

from engine.interop.networkx import CALLS


def pytest_configure():
    """Run on one processor: the graphs are tiny, and handing them to threads takes longer than solving them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"calls: {dict(CALLS)}")
