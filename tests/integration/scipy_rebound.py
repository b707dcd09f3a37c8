"""A pytest plugin that replaces SciPy's shortest-path functions by ours before SciPy's own tests are collected."""

import scipy.sparse.csgraph

from engine.interop import scipy_csgraph

CALLS = dict.fromkeys(("shortest_path", "dijkstra", "johnson", "bellman_ford", "floyd_warshall"), 0)


def counted(name):
    function = getattr(scipy_csgraph, name)

    def call(*arguments, **options):
        CALLS[name] += 1
        return function(*arguments, **options)

    return call


for each in CALLS:
    setattr(scipy.sparse.csgraph, each, counted(each))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"calls: {CALLS}")
