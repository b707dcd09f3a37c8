"""The tool that runs ``./dev test`` in fresh clones, over a repository whose ``dev`` says what it is given."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import clones

DEV = """
import json, os, sys
from pathlib import Path
told = {name: os.environ.get(name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "PYTHONPATH", "PIP_NO_INDEX")}
told.update(words=sys.argv[1:], processors=len(os.sched_getaffinity(0)), shared=Path("../shared/data").exists())
told.update(empty=[not any(Path(told[name]).rglob("*.txt")) for name in ("HOME", "TMPDIR")])
Path(told["HOME"], "left.txt").write_text("left")
Path("../told.json").write_text(json.dumps(told))
print("===== 5 passed, 1 skipped in 0.10s =====")
if Path("../../1").exists() and Path.cwd().parent.name == "1":
    print("FAILED tests/test_some.py::test_one - assert False")
    print("===== 1 failed, 5 passed in 0.10s =====")
    sys.exit(1)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    place = tmp_path / "there" / "main"
    place.mkdir(parents=True)
    (tmp_path / "there" / "shared" / "data").mkdir(parents=True)
    (place / "dev").write_text(DEV)
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=place, check=True)
    monkeypatch.setattr(clones, "ROOT", place)
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    return place


def test_each_run_is_that_of_a_newcomer(root, tmp_path, monkeypatch, capsys):
    kept, wheels = tmp_path / "kept", tmp_path / "wheels"
    words = [
        "clones",
        "--runs",
        "3",
        "--processors",
        "1",
        "--keep",
        str(kept),
        "--wheels",
        str(wheels),
        "--",
        "-k",
        "x",
    ]
    monkeypatch.setattr(sys, "argv", words)
    assert clones.main() == 1
    for number in range(3):
        told = json.loads((kept / str(number) / "told.json").read_text())
        assert told["words"] == ["test", "-k", "x"]
        assert told["empty"] == [True, True]
        assert told["shared"]
        assert told["PYTHONPATH"] is None
        assert told["PIP_NO_INDEX"] == "1"
        assert told["processors"] == 1
        for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
            assert told[name].startswith(str(kept / str(number)))
    said = capsys.readouterr().out
    assert (
        "run 2: status 1, 0 s, a process beside it: 5 passed, 1 skipped in 0.10s; 1 failed, 5 passed in 0.10s" in said
    )
    assert "  FAILED tests/test_some.py::test_one - assert False\n" in said
    assert "2 of 3 runs passed" in said


def test_more_processors_than_there_are_are_refused(root, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["clones", "--side", "1000"])
    with pytest.raises(SystemExit):
        clones.main()
    assert "1000 runs with 2 processors each" in capsys.readouterr().err
