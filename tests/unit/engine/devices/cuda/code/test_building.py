"""Kernels compiled ahead by NVRTC, without a GPU; one small module stands for all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.devices.cuda.code import building, prebuilt
from engine.devices.cuda.code.building import BuildFailedError, build_kernels, compilers
from engine.devices.cuda.code.kernel_set import ARITHMETICS
from engine.devices.cuda.code.prebuilt import PTX, Module, all_modules, find

ROOT = Path(__file__).resolve().parents[6]
ONE = [Module("tell", ARITHMETICS["int32", False])]
TWO = [*ONE, Module("pack", ARITHMETICS["int32", False])]
COMPILER = next((c for c in compilers() if c.knows("sm_90") and c.knows(PTX)), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no NVRTC here; install nvidia-cuda-nvrtc-cu12")


@needs_compiler
def test_what_is_built_is_found_and_is_not_built_again(tmp_path: Path) -> None:
    first = list(build_kernels(tmp_path, ["sm_90", PTX], modules=ONE))
    assert [(b.compiled, b.kept) for b in first] == [(1, 0), (1, 0)]
    again = list(build_kernels(tmp_path, ["sm_90", PTX], modules=ONE))
    assert [(b.compiled, b.kept, b.bytes) for b in again] == [(0, 1, b.bytes) for b in first]
    architecture, code = find(ONE[0], (9, 0), tmp_path) or ("", b"")
    assert architecture == "sm_90"
    assert code.startswith(b"\x7fELF")
    assert b"tell" in code
    architecture, text = find(ONE[0], (12, 0), tmp_path) or ("", b"")
    assert architecture == PTX
    assert b".target sm_100" in text
    assert b".entry tell(" in text


@needs_compiler
def test_only_what_is_missing_or_damaged_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(build_kernels(tmp_path, ["sm_90"], modules=ONE))
    assert [(b.compiled, b.kept) for b in build_kernels(tmp_path, ["sm_90"], modules=TWO)] == [(1, 1)]
    path = tmp_path / "sm_90.zip"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    prebuilt._Archive.at.cache_clear()
    assert [(b.compiled, b.kept) for b in build_kernels(tmp_path, ["sm_90"], modules=TWO)] == [(2, 0)]
    assert path.read_bytes() == whole


@needs_compiler
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    for place, threads in (("a", 1), ("b", 4)):
        list(build_kernels(tmp_path / place, ["sm_90"], modules=TWO, threads=threads))
    assert (tmp_path / "a" / "sm_90.zip").read_bytes() == (tmp_path / "b" / "sm_90.zip").read_bytes()


@needs_compiler
def test_a_kernel_that_does_not_compile_is_named_and_leaves_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "source", lambda kernel: "this is no program")
    with pytest.raises(BuildFailedError, match=r"tell of Int32 for sm_90: .*error"):
        list(build_kernels(tmp_path, ["sm_90"], modules=ONE))
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_the_wheel_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "compilers", list)
    assert building.main(["--architecture", "sm_70", "--out", str(tmp_path)]) == 1
    assert "no compiler here knows sm_70; install the wheel nvidia-cuda-nvrtc-cu12" in capsys.readouterr().err


def test_building_needs_nothing_but_what_the_image_copies(tmp_path: Path) -> None:
    """The build of the image runs it before any package is installed."""
    stage = (ROOT / "deploy" / "Dockerfile").read_text().partition("AS kernels\n")[2].partition("\nFROM ")[0]
    copied = re.findall(r"^COPY (\S+) (\S+)/$", stage, re.MULTILINE)
    assert len(copied) == 5
    for source, folder in copied:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        if source.endswith("/"):
            shutil.copytree(ROOT / source, tmp_path / folder, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, tmp_path / folder)
    assert "-m engine.devices.cuda.code.building --out /built" in stage
    words = ["-S", "-m", "engine.devices.cuda.code.building", "--help"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compute_100" in done.stdout


@pytest.mark.parametrize(
    ("said", "architectures"),
    [
        ("9.0\n9.0\n", ["sm_90"]),
        ("8.6\n7.5\n", ["sm_75", "sm_86"]),
        ("12.0\n", [PTX]),
        ("6.1\n", []),
        ("[N/A]\nNo devices were found\n", []),
    ],
)
def test_the_gpus_here_decide_what_is_built(
    said: str, architectures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert building.architectures_here() == architectures


def test_without_a_gpu_nothing_is_built_for_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert building.main(["--here", "--out", str(tmp_path / "built")]) == 0
    assert capsys.readouterr().err == ""
    assert not list((tmp_path / "built").iterdir())


@needs_compiler
@pytest.mark.slow
@pytest.mark.beside
def test_the_kernels_of_an_architecture_are_less_than_a_megabyte(tmp_path: Path) -> None:
    (built,) = build_kernels(tmp_path, ["sm_90"])
    assert (built.compiled, built.kept) == (len(all_modules()), 0)
    assert built.bytes < 1_000_000
    assert all(find(module, (9, 0), tmp_path) for module in all_modules())
