"""A kernel is compiled once, told of or refused then, and loaded afterwards without what only a compiler needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching, dispatcher

from engine.graph import _elimination, _walks, kernels
from engine.model import progress
from storage.graph.graph import build_graph

KERNEL = """
import contextlib, sys
import numpy as np
from engine.model.progress import NotCompiledError, announcing, only_ready
from engine.graph.kernels import njit

@njit(nogil=True)
def total(values, most):
    return np.cumsum(values)[-1] + np.full(2, most)[0]

@njit(nogil=True, cache=True)
def twice(values):
    if len(values) == 0:
        raise ValueError("there is nothing")
    return 2 * total(values, np.int64(7))

told = []

@contextlib.contextmanager
def tell(name):
    told.append(name)
    yield

if __name__ == "__main__":
    try:
        with only_ready():
            said = twice(np.arange(4))
    except NotCompiledError as error:
        said = str(error)
    with announcing(tell):
        found = twice(np.arange(4))
    try:
        twice(np.arange(0))
    except ValueError as error:
        refused = str(error)
    heavy = sorted({"scipy.linalg", "numba.np.linalg"} & set(sys.modules))
    print(said, found, refused, told, heavy, sep="; ")
"""
COMPILED = "twice is not compiled; 26; there is nothing; ['twice']; "
LOADED = "26; 26; there is nothing; []; []"


def run(folder: Path, **environment: str) -> str:
    command = [sys.executable, str(folder / "own_kernels.py")]
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        command,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_kernel_is_compiled_once_and_then_loaded(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    assert run(tmp_path).startswith(COMPILED)
    assert run(tmp_path) == LOADED
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path, moved)
    assert run(moved) == LOADED
    (moved / "own_kernels.py").write_text(KERNEL.replace("2 * total", "3 * total"))
    assert run(moved).startswith("twice is not compiled; 39; ")


def test_a_kernel_beside_the_program_is_found_by_who_may_not_write_there(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    assert run(tmp_path).startswith(COMPILED)
    empty = tmp_path / "empty"
    assert run(tmp_path, NUMBA_CACHE_DIR=str(empty)) == LOADED
    assert not list(empty.rglob("*.nbc"))


def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    run(tmp_path)
    for file in tmp_path.rglob("*.nbc"):
        file.unlink()
    assert "26; there is nothing" in run(tmp_path)
    assert run(tmp_path) == LOADED


def test_the_parts_of_numba_that_are_replaced_are_there() -> None:
    """A version of numba that names them otherwise is noticed here."""
    for name in ("_load_overload", "_index_key", "_guard_against_spurious_io_errors", "load_overload", "save_overload"):
        assert hasattr(caching.FunctionCache, name)
    assert hasattr(caching.IndexDataCacheFile, "_load_data")
    assert hasattr(dispatcher.Dispatcher, "_compilation_chain_init_hook")


def test_a_refusal_is_of_its_thread_and_ends() -> None:
    salt = time.time_ns()  # never compiled before

    @kernels.njit(nogil=True)
    def add(a, b):
        return a + b + (salt - salt)

    with progress.only_ready(), pytest.raises(progress.NotCompiledError):
        add(np.float32(1), np.int8(2))
    assert add(np.float32(1), np.int8(2)) == 3


def _walks_of(seed: int) -> dict[str, list[object]]:
    """What each walk returns and writes on a random digraph, by the kernels or as they are written."""
    rng = np.random.default_rng(seed)
    n, arcs = int(rng.integers(2, 40)), int(rng.integers(1, 150))
    tails, heads = rng.integers(0, n, arcs), rng.integers(0, n, arcs)
    graph, _ = build_graph(tails, heads, rng.integers(0, 9, arcs), n=n, directed=True)
    form, limit = (graph.indptr, graph.heads, graph.weights), int(rng.integers(5, 200))
    component, order = _walks.strong_components(graph.indptr, graph.heads)
    through = rng.integers(0, 4, int(component.max()) + 1)
    one = np.zeros(n, np.int32)
    calls: dict[str, list[object]] = {
        "count_levels": [graph.indptr, graph.heads, 0],
        "grow_tree": [*form, 0, limit, np.empty(n, np.int64)],
        "grow_back": [*form, 0, limit, np.empty(n, np.int64), 3],
        "strong_components": [graph.indptr, graph.heads],
        "search_from_hubs": [*form, one, np.array([0, n - 1]), limit, np.empty(n, np.int64)],
        "longest_chain": [*form, component, order, through, limit],
        "block_cubes": [graph.indptr, graph.heads.astype(np.int64)],
    }
    return calls


#: Where among its arguments a walk writes labels.
LABELS = {"grow_tree": 5, "grow_back": 5, "search_from_hubs": 6}


@pytest.mark.parametrize("seed", range(20))
def test_python_finds_what_the_kernels_find(seed: int) -> None:
    for name, inputs in _walks_of(seed).items():
        kernel = getattr(_elimination if name == "block_cubes" else _walks, name)
        twice = [x.copy() if i == LABELS.get(name) else x for i, x in enumerate(inputs)]  # type: ignore[attr-defined]
        answers = kernels.as_written(kernel)(*twice), kernel(*inputs)
        for one, other in zip(*(a if isinstance(a, tuple) else (a,) for a in answers), strict=True):
            assert np.array_equal(one, other), name
        if name in LABELS and answers[1]:
            assert np.array_equal(twice[LABELS[name]], inputs[LABELS[name]]), name  # type: ignore[arg-type]


def test_little_work_waits_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels._KernelCache, "holds", lambda *_: False)
    path = np.arange(4), np.array([1, 2, 3], np.int16)  # no kernel was compiled for heads of 16 bits
    told: list[str] = []

    @contextlib.contextmanager
    def tell(name: str) -> Iterator[None]:
        told.append(name)
        raise InterruptedError
        yield

    indptr = np.append(path[0], 3)
    with progress.announcing(tell):
        assert kernels.call(_walks.count_levels, indptr, path[1], 0, work=kernels.PLAIN) == (3, 3)
        assert told == []
        with pytest.raises(InterruptedError):
            kernels.call(_walks.count_levels, indptr, path[1], 0, work=kernels.PLAIN + 1)
    assert told == ["count_levels"]
