"""An installation without what only services need: every other command works, and those of a service say what to do."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from service.cli import main
from service.cli.nodes import SERVICE_MODULES

ROOT = Path(__file__).resolve().parents[4]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
#: Starts the command line of an installation that lacks the packages of the extra, and what they bring along.
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({[*SERVICE_MODULES, "starlette", "mako", "psycopg_binary"]}))
from service.cli.start import main
main()
"""


def apsp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


def test_the_extra_installs_what_the_commands_ask_for():
    names = {Requirement(line).name.replace("-", "_") for line in EXTRAS["service"]}
    assert names == set(SERVICE_MODULES)


def test_the_commands_of_files_work_without_it(tmp_path):
    (tmp_path / "g.csv").write_text("a,b,w\nu,v,1\nv,w,2\nw,u,4\n")
    for words in (
        ("solve", "g.csv", "--out", "s.zarr"),
        ("query", "s.zarr", "distance", "u", "w"),
        ("verify", "s.zarr"),
        ("export", "s.zarr", "-o", "s.csv"),
        ("prepare", "g.csv", "--out", "p"),
        ("near", "g.csv", "--cutoff", "2", "--out", "n.csv"),
        ("measure", "g.csv", "--out", "m.csv"),
        ("serve", "--show-settings"),
    ):
        done = apsp(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    far = apsp(tmp_path, "jobs", "--server", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in far.stderr
    assert "fault in apsp" not in far.stderr


@pytest.mark.parametrize("words", [("serve",), ("runner",), ("key", "list"), ("serve-routes", "s.zarr")], ids=" ".join)
def test_the_commands_of_a_service_say_what_to_install(words, tmp_path):
    done = apsp(tmp_path, *words)
    assert done.returncode == 2
    assert "fastapi" in done.stderr
    assert "pip install 'apsp[service]'" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_workers_have_no_device_for_short_jobs(capsys):
    assert main.run(["worker", "--scheduler", "tcp://127.0.0.1:9", "--devices", "cpu,short"]) == 2
    assert "short is a runner of jobs" in capsys.readouterr().err
