"""Kernels that were compiled ahead run as those that are compiled here; damaged ones are compiled instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.devices.cuda.code import prebuilt
from engine.devices.cuda.code.building import build_kernels, compilers
from engine.devices.cuda.code.kernel_set import ARITHMETICS, forms
from engine.devices.cuda.code.prebuilt import Module, all_modules, architectures_of, write_archive
from engine.devices.cuda.context import Modules, ensure_kernels, modules
from engine.devices.cuda.launch import Launcher, blank
from engine.model.dtypes import WORK_TYPES
from engine.model.progress import announcing

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]
INT32 = ARITHMETICS["int32", False]
NAMES = ("single32", "relax", "pack", "tell")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The archive of a few modules for the device here, as the only one of this installation."""
    architecture = next(architectures_of(modules().capability))
    if not any(c.knows(architecture) for c in compilers()):
        pytest.skip(f"no NVRTC of a wheel knows {architecture}")
    built = list(build_kernels(tmp_path, [architecture], modules=[Module(name, INT32) for name in NAMES]))
    monkeypatch.setattr(prebuilt, "folder", lambda: tmp_path)
    yield built[0].path
    prebuilt._Archive.at.cache_clear()


def _closed(found: Modules) -> np.ndarray[Any, np.dtype[np.int32]]:
    n = 100
    rng = np.random.default_rng(3)
    start = rng.integers(1, 1000, (n, n)).astype(np.int32)
    np.fill_diagonal(start, 0)
    d = found.cupy.asarray(start)
    launcher = Launcher(found, "int32", nonnegative=True)
    launcher.close(d, side=32)
    launcher.relax(d, d.copy(), d.copy())
    return np.asarray(d.get())


def test_loaded_kernels_run_and_nobody_is_told_of_a_compilation(archive: Path) -> None:
    told: list[str] = []

    def tell(name: str) -> AbstractContextManager[None]:
        told.append(name)
        return nullcontext()

    found = Modules()
    with announcing(tell):
        closed = _closed(found)
        assert (found.loaded, told) == (3, [])
        found.get("settle", INT32)
    assert told == ["settle"]
    expected = closed.copy()
    for k in range(len(expected)):
        np.minimum(expected, expected[:, k : k + 1] + expected[k], out=expected)
    assert np.array_equal(closed, expected)


@pytest.mark.parametrize("damage", ["cut", "not machine code"])
def test_a_damaged_archive_is_not_run(archive: Path, damage: str) -> None:
    good = _closed(Modules())
    if damage == "cut":
        archive.write_bytes(archive.read_bytes()[:-3000])
        prebuilt._Archive.at.cache_clear()
    else:  # a right digest over what the driver refuses
        keys = [Module(name, INT32).key(archive.stem) for name in NAMES]
        write_archive(archive, dict.fromkeys(keys, b"no machine code"), made_by="a test")
    found = Modules()
    assert np.array_equal(_closed(found), good)
    assert found.loaded == 0


def test_all_kernels_can_be_made_ready() -> None:
    loaded, compiled = ensure_kernels()
    assert loaded + compiled == len(all_modules())
    found = modules()
    assert all(found.get(name, arithmetic).ptr for name, arithmetic in forms())


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32", "float64"])
def test_rows_are_cleared_and_what_lies_beside_them_is_not(dtype: str) -> None:
    found = modules()
    whole = found.cupy.asarray(np.ones((7, 1000), dtype))
    blank(found, whole[2:5, 10:700])
    expected = np.ones((7, 1000), dtype)
    expected[2:5, 10:700] = WORK_TYPES[dtype].sentinel()
    assert np.array_equal(whole.get(), expected)
    blank(found, whole[:0])
    blank(found, whole[:, :0])
    assert np.array_equal(whole.get(), expected)
