"""Runs NetworkX's own tests with this engine as their backend."""

import os
import re
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from engine.interop.networkx_info import FUNCTIONS

ROOT = Path(__file__).parents[2]
SUITES = (
    "shortest_paths/tests",
    "tests/test_distance_measures.py",
    "tests/test_wiener.py",
    "tests/test_efficiency.py",
    "centrality/tests/test_closeness_centrality.py",
    "centrality/tests/test_harmonic_centrality.py",
    "centrality/tests/test_betweenness_centrality.py",
    "centrality/tests/test_betweenness_centrality_subset.py",
)
#: least numbers of calls in these suites that the engine answers, where some could fall back to NetworkX unseen
ANSWERED = {
    "eccentricity": 37, "closeness_centrality": 21, "harmonic_centrality": 9, "betweenness_centrality": 66,
    "edge_betweenness_centrality": 17, "betweenness_centrality_subset": 12,
}  # fmt: skip


#: One of these tests has 500 cases of 144 searches, which take nine times as long as the 388 others.
LONGEST = "test_use_bounds_on_off_consistency"


@pytest.mark.parametrize(
    "longest",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.long)],
    ids=["all but one", "the longest"],
)
def test_networkxs_own_tests_pass_and_every_function_ran_here(tmp_path, longest):
    algorithms = Path(networkx.__file__).parent / "algorithms"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.integration.networkx_counted", "-c", "/dev/null"]
    environment = {
        **os.environ,
        "NETWORKX_TEST_BACKEND": "apsp",
        "NETWORKX_FALLBACK_TO_NX": "True",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-k", LONGEST if longest else f"not {LONGEST}",
         *(str(algorithms / suite) for suite in SUITES)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= (500 if longest else 380)
    if longest:
        return
    counts = {name: int(count) for name, count in re.findall(r"'(\w+)': (\d+)", done.stdout)}
    assert {name for name in FUNCTIONS if not counts.get(name)} == set()
    assert {name: counts[name] for name, least in ANSWERED.items() if counts[name] < least} == {}
