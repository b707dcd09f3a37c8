"""Tests SIGKILL before every file operation of writing a store, and readers while another process writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from storage.errors import NotFound, StorageFailed
from storage.matrix.reader import MatrixSpec, create_matrix, open_matrix
from tests.faults.crash_store import NEW, OLD, SCENARIOS, N
from tests.stores import entries_of, line_graph, make_store, verify_matrix

ROOT = Path(__file__).resolve().parents[2]
#: What only the long suite takes, because of its time.
LONG = ("overwrite without exchange",)


def run_module(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def scratch(tmp_path):
    """A folder in memory where there is one: a kill -9 is the same there, and thousands of files cost nothing."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def which_store(path: Path) -> int | None:
    """The seed of the store at ``path``, all of it verified; None when there is none."""
    try:
        matrix = open_matrix(path)
    except NotFound:
        return None
    with matrix:
        seed = matrix.summary["seed"]
        np.testing.assert_array_equal(matrix.rows(range(N)), entries_of(N, N, "float32", seed))
    verify_matrix(path)
    return seed


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in SCENARIOS]
)
def test_a_kill_at_any_file_operation_leaves_the_old_store_or_the_new_one(scratch, scenario):
    process = run_module("-m", "tests.faults.crash_store", str(scratch), scenario)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    operations = json.loads(out)
    assert {"open", "os.mkdir", "writev", "fsync"} <= set(operations)
    assert ("renameat2" in operations) == (scenario != "overwrite without exchange")

    old = None if scenario == "fresh" else OLD
    found = []
    for point in range(1, len(operations) + 2):
        path = scratch / str(point) / "d.zarr"
        seed = which_store(path)
        assert seed in (old, NEW), f"killed before operation {point}, {operations[point - 1 :][:1]}"
        found.append(seed)
        # The next writer clears what the dead one left, and loses nothing that opened before.
        if seed is None:
            create_matrix(path, line_graph(3), MatrixSpec("float32", np.inf)).abort()
            assert list(path.parent.iterdir()) == []
        else:
            create_matrix(path, line_graph(3), MatrixSpec("float32", np.inf), overwrite=True).abort()
            assert list(path.parent.iterdir()) == [path]
            assert which_store(path) == seed
    # Old up to one operation, new from there on: the swap is a single step.
    swap = found.index(NEW)
    assert swap > 50
    assert found == [old] * swap + [NEW] * (len(found) - swap)


READER = """
import sys, numpy as np
from storage.matrix.reader import open_matrix
from tests.stores import entries_of
expected = entries_of(300, 300, "int32", 5)
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    with open_matrix(sys.argv[1]) as matrix:
        assert (matrix.rows(range(300)) == expected).all()
        assert (matrix.entries(range(300), range(300)) == expected.diagonal()).all()
print("read", flush=True)
"""


def test_two_processes_read_while_one_writes_another_store(tmp_path):
    read, written = tmp_path / "read.zarr", tmp_path / "written.zarr"
    make_store(read, 300, "int32", seed=5)
    readers = [run_module("-c", READER, str(read), "200") for _ in range(2)]
    for reader in readers:
        assert reader.stdout.readline() == "ready\n"
    turns = 0
    while any(reader.poll() is None for reader in readers):
        make_store(written, 300, "int32", seed=turns, overwrite=True)
        turns += 1
    for reader in readers:
        # not `communicate`: what arrived together with the first line is in the buffer of `readline`
        with reader:
            out, err = reader.stdout.read(), reader.stderr.read()
        assert (reader.returncode, out) == (0, "read\n"), err
    assert turns > 1
    verify_matrix(written)


def test_a_reader_of_a_store_that_is_replaced_gets_all_of_one_store_or_an_error(tmp_path):
    path = tmp_path / "d.zarr"
    make_store(path, N, seed=0)
    script = f"""
from pathlib import Path
from tests.stores import make_store
for seed in range(1, 30):
    make_store(Path({str(path)!r}), {N}, seed=seed, overwrite=True)
"""
    writer = run_module("-c", script)
    seen = set()
    while writer.poll() is None:
        with open_matrix(path) as matrix:
            seed = matrix.summary["seed"]
            try:
                rows = matrix.rows(range(N))
            except StorageFailed as error:
                if "replaced or removed while open" not in str(error):
                    raise
                continue
            np.testing.assert_array_equal(rows, entries_of(N, N, "float32", seed))
            seen.add(seed)
    assert writer.returncode == 0, writer.communicate()[1]
    writer.communicate()
    assert which_store(path) == 29
    assert len(seen) > 2
