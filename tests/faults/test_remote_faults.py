"""Tests kills before each request of sealing: then the old store, the new one or none can be read, never a mixture."""

import json
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from storage.errors import NotFound
from storage.matrix.frame import MatrixSpec
from storage.matrix.reader import open_matrix
from storage.matrix.working import open_working
from storage.remote.writer import fetch_checkpoint
from tests.faults.crash_remote import NEW, OLD, SCENARIOS, N, write
from tests.s3 import S3Server
from tests.stores import entries_of, line_graph, verify_matrix

ROOT = Path(__file__).resolve().parents[2]
#: What only the long suite takes, because of its time.
LONG = ("overwrite",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in SCENARIOS]
)
def test_a_kill_before_any_request(s3: S3Server, tmp_path: Path, scenario: str):
    address = f"{s3.address}/{secrets.token_hex(4)}"
    program = [sys.executable, "-m", "tests.faults.crash_remote", str(tmp_path), address, scenario]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    requests = json.loads(done.stdout)
    sealing = [k for k, name in enumerate(requests, 1) if name in ("create zarr.json", "replace zarr.json")]
    assert len(sealing) == 1
    assert len(requests) > 15
    for point in range(1, len(requests) + 2):
        place, there = tmp_path / str(point), f"{address}/{point}/d.zarr"
        expected = NEW if point > sealing[0] else OLD if scenario == "overwrite" else None
        if expected is None:
            with pytest.raises(NotFound):
                open_matrix(there)
            finish(place, there, requests[: point - 1])
            expected = NEW
        with open_matrix(there) as matrix:
            np.testing.assert_array_equal(matrix.rows(np.arange(N)), entries_of(N, N, "float32", expected))
            assert matrix.summary == {"seed": expected}
        verify_matrix(there)


def finish(place: Path, there: str, before: list[str]) -> None:
    """Whoever comes next does it again, or goes on with the checkpoint if it was sent; on a machine of its own."""
    folder = place / "elsewhere"
    folder.mkdir()
    if "write checkpoint.json" not in before:
        assert not fetch_checkpoint(folder / "d.zarr", there)
        write(folder, there, NEW)
        return
    assert fetch_checkpoint(folder / "d.zarr", there)
    with open_working(
        folder / "d.zarr", line_graph(N), MatrixSpec("float32", float("inf")), address=there, resume=True
    ) as writer:
        assert writer.record() == {"rows": 64}
        entries, found = entries_of(N, N, "float32", NEW), np.empty((64, N), np.float32)
        writer.read_rows(0, found)
        np.testing.assert_array_equal(found, entries[:64])
        writer.write(64, 0, entries[64:])
        writer.seal({"seed": NEW})
