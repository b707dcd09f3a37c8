"""Runs SciPy's own tests of shortest paths with our functions in place of SciPy's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import scipy.sparse.csgraph.tests as suites

FOLDER = Path(suites.__path__[0])


def test_scipys_own_tests_pass_with_our_functions():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.integration.scipy_rebound", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [
            *command,
            "-c",
            "/dev/null",
            "--rootdir",
            "/",
            *map(str, (FOLDER / "test_shortest_path.py", FOLDER / "test_pydata_sparse.py")),
        ],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "skipped" not in done.stdout  # sparse is installed
    counts = dict(re.findall(r"'(\w+)': (\d+)", done.stdout))
    assert int(counts["shortest_path"]) > 80
    assert int(counts["dijkstra"]) > 30
    assert all(int(counts[name]) > 0 for name in ("johnson", "bellman_ford"))
