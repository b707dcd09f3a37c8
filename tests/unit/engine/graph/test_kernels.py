"""A kernel is compiled once, told of or refused then, and loaded afterwards without what only a compiler needs."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.execution import kernel_list
from engine.graph import _elimination, _walks, kernels, transpose
from engine.graph.kernels import plain
from engine.model import progress
from storage.graph.graph import build_graph
from tests.cycles import keepers, no_collection

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
        # Python knows its bytecode by the second and the size of a file, and tests edit files within the second
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with its kernels compiled, which takes two seconds of processor time."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "own_kernels.py").write_text(KERNEL)
    assert run(folder).startswith(COMPILED)
    return folder


@pytest.fixture
def copied(compiled: Path, tmp_path: Path) -> Path:
    """A copy of the compiled program, which the test may change."""
    return Path(shutil.copytree(compiled, tmp_path / "copied"))


def test_a_kernel_is_compiled_once_and_then_loaded(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    assert run(tmp_path).startswith(COMPILED)
    assert run(tmp_path) == LOADED
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path, moved)
    assert run(moved) == LOADED
    (moved / "own_kernels.py").write_text(KERNEL.replace("2 * total", "3 * total"))
    assert run(moved).startswith("twice is not compiled; 39; ")


def test_a_kernel_beside_the_program_is_found_by_who_may_not_write_there(copied: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    assert run(copied, NUMBA_CACHE_DIR=str(empty)) == LOADED
    assert not list(empty.rglob("*.nbc"))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


def test_a_missing_file_is_compiled_anew(copied: Path) -> None:
    for file in files(copied):
        file.unlink()
    assert "26; there is nothing" in run(copied)
    assert run(copied) == LOADED


def test_a_damaged_file_is_compiled_anew(copied: Path) -> None:
    short, changed = files(copied)
    short.write_bytes(short.read_bytes()[:20])
    whole = bytearray(changed.read_bytes())
    whole[len(whole) // 2] ^= 1
    changed.write_bytes(whole)
    assert "26; there is nothing" in run(copied)
    assert run(copied) == LOADED


def test_the_file_of_another_form_is_not_loaded(copied: Path) -> None:
    """Where two processes write the same index, numba's own cache can hand one kernel out as another."""
    one, other = files(copied)
    one.write_bytes(other.read_bytes())
    assert "26; there is nothing" in run(copied)
    assert run(copied) == LOADED


CALLER = """
from called import LIMIT, Kind, lift, twice
from engine.graph.kernels import njit

@njit()
def doubled(value):
    return twice(value) + LIMIT

if __name__ == "__main__":
    from engine.model.progress import NotCompiledError, only_ready
    try:
        with only_ready():
            print("loaded", doubled(3))
    except NotCompiledError:
        print("compiled", doubled(3))
"""
CALLED = """
from engine.graph.kernels import njit
LIMIT = 1
class Kind: pass
def lift(value): return value

@njit()
def twice(value):
    return 2 * value
"""


@pytest.mark.parametrize(("before", "after", "found"), [("2 * value", "4 * value", 13), ("LIMIT = 1", "LIMIT = 5", 11)])
def test_an_edit_of_what_a_kernel_calls_is_noticed(tmp_path: Path, before: str, after: str, found: int) -> None:
    """numba itself looks at the file of the caller only."""
    (tmp_path / "own_kernels.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED)
    assert [run(tmp_path), run(tmp_path)] == ["compiled 7", "loaded 7"]
    (tmp_path / "called.py").write_text(CALLED.replace(before, after))
    assert run(tmp_path) == f"compiled {found}"


EDITS = """
from pathlib import Path
import called, time
from own_kernels import doubled
file = Path(called.__file__)
time.sleep(0.05)
file.write_text(file.read_text().replace("2 * value", "4 * value"))
print(doubled(3))
"""


def test_a_process_whose_files_are_changed_keeps_nothing_for_others(tmp_path: Path) -> None:
    """It has imported the old functions, and would keep them as those of the new files."""
    (tmp_path / "own_kernels.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED)
    editing = subprocess.run(
        [sys.executable, "-c", EDITS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert editing.stdout.strip() == "7"
    assert [run(tmp_path), run(tmp_path)] == ["compiled 13", "loaded 13"]


def test_kernels_run_as_python_where_numba_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    assert run(tmp_path, NUMBA_DISABLE_JIT="1").startswith("26; 26; there is nothing; []; ")


def test_sets_of_options_have_one_order() -> None:
    def same(value):  # type: ignore[no-untyped-def]
        return value

    words = ["nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"]
    made = [kernels.CompiledKernel(same, {"fastmath": set(some)})._options for some in (words, words[::-1])]
    kernels.KERNELS.pop((same.__module__, same.__qualname__))
    assert made[0] == made[1] == repr([("fastmath", repr(sorted(words)))])


@pytest.mark.skipif(not kernels.OWN_CACHE, reason="plain numba counts all references")
def test_a_kernel_that_borrows_arrays_counts_no_references_and_returns_none_of_them() -> None:
    def _made(most):  # type: ignore[no-untyped-def]
        return np.full(3, most)[1:].sum()

    made = kernels.CompiledKernel(_made, {}).dispatcher

    def _summed(pair):  # type: ignore[no-untyped-def]
        values, most = pair
        found = 0.0
        for i in range(len(values)):
            found += values[i:][0] + made(most)
        return found

    def _same(values):  # type: ignore[no-untyped-def]
        return values

    summed, same = (kernels.CompiledKernel(one, {"borrows": True}).dispatcher for one in (_summed, _same))
    for one in (_made, _summed, _same):
        kernels.KERNELS.pop((one.__module__, one.__qualname__))
    values = np.arange(4.0)
    counted = sys.getrefcount(values)
    assert summed((values, 2.0)) == 6.0 + 4 * 4.0
    assert sys.getrefcount(values) == counted
    assert made(3.0) == 6.0  # its form was compiled for a kernel that borrows, and counts all the same
    assert (summed.targetoptions["_nrt"], made.targetoptions["_nrt"]) == (False, True)
    with pytest.raises(TypeError, match="_same borrows its arrays, so it may not return one"):
        same(values)


def test_kernels_of_the_program_that_borrow_arrays_return_none() -> None:
    for module in {listed.module for listed in kernel_list.listed_kernels()}:
        importlib.import_module(module)
    borrowing = [one for one in kernels.KERNELS.values() if "borrows" in one._options]
    assert {"pass_hops", "pass_packed", "pass_wide", "pass_together", "pass_forward", "count_in_order"} <= {
        one.name[1] for one in borrowing
    }
    making = {"empty", "zeros", "ones", "full", "arange", "copy", "astype", "empty_like", "zeros_like"}
    assert [one.name for one in borrowing if making & set(one.function.__code__.co_names)] == []


def test_kernels_are_found_wherever_they_and_their_libraries_lie() -> None:
    """A copy of the program, with libraries in another folder, loads the kernels that were copied with it."""
    for module in {listed.module for listed in kernel_list.listed_kernels()}:
        importlib.import_module(module)
    texts = [kernels._constant(value) for one in kernels.KERNELS.values() for _, value in kernels._read(one.function)]
    assert len(texts) > 100
    assert [text for text in texts if "/" in text or " at 0x" in text] == []
    assert kernels._constant(np) == "module numpy"


def test_the_middle_of_a_long_array_counts() -> None:
    values = np.zeros(5_000)
    before = kernels._constant(values)
    values[2_500] = 1
    assert kernels._constant(values) != before


def test_many_processes_compile_at_once(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNEL)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: run(tmp_path), range(4)))
    assert all("26; there is nothing" in one for one in found)
    assert len(files(tmp_path)) == 2
    assert not list(tmp_path.rglob("*.part"))
    assert run(tmp_path) == LOADED


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="needs a folder that nobody can write")
def test_where_nothing_can_be_written_kernels_are_compiled_in_each_process(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    tells = "    from engine.model.progress import kernels_are_kept\n    print(kernels_are_kept())\n"
    (program / "own_kernels.py").write_text(KERNEL + tells)
    (program / "__pycache__").write_text("")  # a file where the folder would be: even root cannot write below it
    nowhere = {"XDG_CACHE_HOME": "/proc/nowhere", "HOME": "/proc/nowhere"}
    for _ in range(2):
        found = run(program, **nowhere)
        assert found.startswith(COMPILED)
        assert found.endswith("False"), "which is said where people wait for it"


def test_without_a_folder_of_caches_none_is_made_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba takes ``~/.cache`` as it stands for a user without a home, and an empty XDG_CACHE_HOME for a folder."""
    program, here = tmp_path / "program", tmp_path / "here"
    program.mkdir()
    here.mkdir()
    tells = "    from engine.model.progress import kernels_are_kept\n    print(kernels_are_kept())\n"
    (program / "own_kernels.py").write_text(KERNEL + tells)
    (program / "__pycache__").write_text("")
    monkeypatch.chdir(here)
    found = run(program, XDG_CACHE_HOME="")
    assert found.startswith(COMPILED)
    assert found.endswith("False")
    assert list(here.iterdir()) == []


def test_a_full_disk_does_not_end_a_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernels, "_replace", full)
    salt = time.time_ns()

    @kernels.njit()
    def subtract(a, b):
        return a - b + (salt - salt)

    assert subtract(7, 2) == 5


SIMULATED = """
import sys
import numba
{change}
import kept
from engine.graph import kernels
import numpy as np
print(kernels.OWN_CACHE, kept.twice(np.arange(4)), type(kept.twice._cache).__name__)
"""


@pytest.mark.parametrize(
    "change",
    [
        "numba.__version__ = '0.69.0'",
        "numba.__version__ = '1.0.0rc1'",
        "from numba.core import caching; del caching.CompileResultCacheImpl",
        "from numba.core import caching; caching._CacheLocator.get_cache_path = lambda self, more: None",
    ],
)
def test_a_numba_with_other_parts_keeps_kernels_its_own_way(tmp_path: Path, change: str) -> None:
    (tmp_path / "kept.py").write_text(KERNEL)
    (tmp_path / "own_kernels.py").write_text(SIMULATED.format(change=change))
    assert run(tmp_path) == "False 26 FunctionCache"
    assert run(tmp_path) == "False 26 FunctionCache"  # and loads what it kept
    assert list(tmp_path.rglob("*.nbi"))


def test_this_numba_is_known() -> None:
    """A version that is installed but was not compared with this program is noticed here."""
    assert kernels.OWN_CACHE
    assert not kernels.is_known("0.69.0")
    assert kernels.is_known("0.68.99")


def test_a_refusal_is_of_its_thread_and_ends() -> None:
    salt = time.time_ns()  # never compiled before

    @kernels.njit(nogil=True)
    def add(a, b):
        return a + b + (salt - salt)

    with progress.only_ready(), pytest.raises(progress.NotCompiledError):
        add(np.float32(1), np.int8(2))
    assert add(np.float32(1), np.int8(2)) == 3


def test_the_time_of_work_stands_still_while_a_kernel_is_compiled() -> None:
    salt = time.time_ns()  # never compiled before

    @kernels.njit(nogil=True)
    def double(a):
        return 2 * a + (salt - salt)

    began, worked = time.perf_counter(), progress.working_time()
    assert double(np.int16(21)) == 42
    took, work = time.perf_counter() - began, progress.working_time() - worked
    assert work < took / 2
    before = progress.working_time()
    time.sleep(0.02)
    assert progress.working_time() - before >= 0.02


def test_a_compilation_keeps_nothing_of_those_who_wait_for_it() -> None:
    """Errors that numba catches and keeps refer to frames, which refer to those of all callers."""
    salt, gone = time.time_ns(), list[weakref.ref[set[int]]]()  # never compiled before

    @kernels.njit(nogil=True)
    def double(a):
        return 2 * a + (salt - salt)

    own = double._cache
    real = own._compile

    def keeping(signature: object) -> object:
        try:
            raise TypeError
        except TypeError as error:
            kept = error  # refers to this frame
        assert kept.__traceback__ is not None
        return real(signature)

    def ask() -> None:
        graph = {1, 2}
        gone.append(weakref.ref(graph))
        assert double(np.int16(21)) == 42

    own._compile = keeping
    with no_collection():
        ask()
        assert gone[0]() is None, keepers(gone[0]())


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
        "walk_from_hubs": [*form, one, np.array([0, n - 1]), limit, np.empty(n, np.int64)],
        "transpose_arcs": [graph.indptr, graph.heads],
        "both_ways": [graph.indptr, graph.heads],
        "longest_chain": [*form, component, order, through, limit],
        "block_cubes": [graph.indptr, graph.heads.astype(np.int64)],
    }
    return calls


#: Where among its arguments a walk writes labels.
LABELS = {"grow_tree": 5, "grow_back": 5, "search_from_hubs": 6, "walk_from_hubs": 6}


@pytest.mark.parametrize("seed", range(20))
def test_python_finds_what_the_kernels_find(seed: int) -> None:
    for name, inputs in _walks_of(seed).items():
        kernel = getattr({"block_cubes": _elimination, "transpose_arcs": transpose}.get(name, _walks), name)
        twice = [x.copy() if i == LABELS.get(name) else x for i, x in enumerate(inputs)]  # type: ignore[attr-defined]
        answers = plain.as_written(kernel)(*twice), kernel(*inputs)
        for one, other in zip(*(a if isinstance(a, tuple) else (a,) for a in answers), strict=True):
            assert np.array_equal(one, other), name
        if name in LABELS and answers[1]:
            assert np.array_equal(twice[LABELS[name]], inputs[LABELS[name]]), name  # type: ignore[arg-type]


def test_little_work_waits_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.CompiledKernel, "holds", lambda *_: False)
    path = np.arange(4), np.array([1, 2, 3], np.int16)  # no kernel was compiled for heads of 16 bits
    told: list[str] = []

    @contextlib.contextmanager
    def tell(name: str) -> Iterator[None]:
        told.append(name)
        raise InterruptedError
        yield

    indptr = np.append(path[0], 3)
    with progress.announcing(tell):
        assert plain.call(_walks.count_levels, indptr, path[1], 0, work=plain.PLAIN) == (3, 3)
        assert told == []
        with pytest.raises(InterruptedError):
            plain.call(_walks.count_levels, indptr, path[1], 0, work=plain.PLAIN + 1)
    assert told == ["count_levels"]


def test_work_that_comes_again_and_again_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.CompiledKernel, "holds", lambda *_: False)
    monkeypatch.setattr(plain, "_SPENT", {})
    indptr, heads = np.append(np.arange(4), 3), np.array([1, 2, 3], np.uint8)  # no kernel was compiled for this type
    told: list[str] = []

    @contextlib.contextmanager
    def tell(name: str) -> Iterator[None]:
        told.append(name)
        raise InterruptedError
        yield

    def levels() -> object:
        return plain.call(_walks.count_levels, indptr, heads, 0, work=7)

    with progress.announcing(tell):
        assert levels() == (3, 3)
        assert 0 < plain._SPENT[_walks.count_levels] < 0.5
        monkeypatch.setattr(plain, "ENOUGH", plain._SPENT[_walks.count_levels])
        with progress.only_ready():  # who refuses to wait is not made to wait
            assert levels() == (3, 3)
        assert told == []
        with pytest.raises(InterruptedError):
            levels()
    assert told == ["count_levels"]


def test_a_level_has_kernels_of_its_own_which_its_processors_share(copied: Path) -> None:
    assert run(copied, APSP_CPU_LEVEL="x86-64-v2").startswith(COMPILED)
    assert run(copied, APSP_CPU_LEVEL="x86-64-v2") == LOADED
    assert run(copied) == LOADED
    assert len(files(copied)) == 4


def test_a_level_that_this_processor_does_not_have_can_be_compiled(tmp_path: Path) -> None:
    """As the build of an image does: nothing that was compiled is run."""
    (tmp_path / "own_kernels.py").write_text(
        KERNEL.partition("if __name__")[0] + "twice.compile((types.int64[::1],))\n"
    )
    (tmp_path / "own_kernels.py").write_text("from numba import types\n" + (tmp_path / "own_kernels.py").read_text())
    run(tmp_path, NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES="+avx512fp16,+amx-tile")
    assert len(files(tmp_path)) == 2


@pytest.mark.skipif(not kernels.OWN_CACHE, reason="numba compiles by itself")
def test_a_signal_during_a_compilation_is_heard_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler calls back into Python, where the exception of a handler would be lost and the kernel with it."""

    def handle(number: int, frame: object) -> None:
        raise InterruptedError

    def least(values):  # type: ignore[no-untyped-def]
        return values.min() + 1

    kernel = kernels.CompiledKernel(least, {"nogil": True})
    monkeypatch.setattr(kernel, "_places", tuple)
    compile_it, done = kernel._compile, []

    def interrupted(signature: object) -> object:
        os.kill(os.getpid(), signal.SIGUSR1)
        found = compile_it(signature)
        done.append(signature)
        return found

    kernel._compile = interrupted
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(InterruptedError):
            kernel.dispatcher(np.arange(3))
        assert len(done) == 1
        assert kernel.dispatcher(np.arange(3)) == 1
        assert len(done) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
        kernels.KERNELS.pop(kernel.name, None)


LINKED = """
from engine.graph.kernels import loading
from llvmlite import binding
read, parse = [], binding.parse_bitcode
binding.parse_bitcode = lambda code: read.append(len(code)) or parse(code)
import own_kernels
import numpy as np
from engine.graph.kernels import njit
from engine.model import progress

assert own_kernels.twice(np.arange(4)) == 26
print(len(read), end="; ")

@njit(nogil=True)
def thrice(values):
    return own_kernels_twice(values) + own_kernels.total(values, np.int64(7))

own_kernels_twice = own_kernels.twice
print(thrice(np.arange(4)), len(read) > 0)
"""


def test_code_of_a_loaded_kernel_is_read_when_a_caller_of_it_is_compiled(copied: Path) -> None:
    (copied / "linked.py").write_text(LINKED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copied), *sys.path])}

    def printed(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert not printed("-c", "import own_kernels, numpy; own_kernels.twice(numpy.arange(4))")
    assert printed(str(copied / "linked.py")) == "0; 39 True\n"
