"""The table of CUDA kernels: their sources, which are package data, and all combinations in which they are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of one entry type: the struct in ``common.cuh`` that adds and compares, and its tile in
    ``relax.cu``.

    Attributes:
        name: the name of the struct.
        lanes: entries per word.
        word: bytes per word.
        tile: rows and columns (entries) of C that a thread block of relax computes.
        shared: bytes of shared memory that a thread block of relax needs.
    """

    name: str
    lanes: int
    word: int
    tile: tuple[int, int]
    shared: int


@dataclass(frozen=True)
class Kernel:
    """One entry point: its file, its name, the threads of a block and the macros that it is compiled with."""

    file: str
    entry: str
    threads: int
    defines: tuple[str, ...] = ()


_WORDS_32: Final = 4 * 16 * (128 + 128) * 4 + 16
_WORDS_64: Final = 4 * 8 * (128 + 64) * 8 + 16

#: Arithmetics, by the name of the dtype and whether entries may be negative.
ARITHMETICS: Final = MappingProxyType(
    {
        ("uint16", False): Arithmetic("Uint16", 2, 4, (128, 256), _WORDS_32),
        ("int32", False): Arithmetic("Int32", 1, 4, (128, 128), _WORDS_32),
        ("int32", True): Arithmetic("Int32", 1, 4, (128, 128), _WORDS_32),
        ("float32", False): Arithmetic("Float32Nonnegative", 1, 4, (128, 128), _WORDS_32),
        ("float32", True): Arithmetic("Float32Signed", 1, 4, (128, 128), _WORDS_32),
        ("float64", False): Arithmetic("Float64", 1, 8, (128, 64), _WORDS_64),
        ("float64", True): Arithmetic("Float64", 1, 8, (128, 64), _WORDS_64),
    }
)

KERNELS: Final = MappingProxyType(
    {
        "relax": Kernel("relax.cu", "relax", 256),
        "pack": Kernel("pack.cu", "pack", 256),
        "mirror": Kernel("pack.cu", "mirror", 256),
        **{
            name: Kernel("dense.cu", name, 256)
            for name in ("blank", "scatter", "settle", "restore", "facts", "histogram")
        },
        **{
            name: Kernel("measures.cu", name, 256)
            for name in ("narrow", "inverses", "within", "weigh", "fade", "quantile", "nearest")
        },
        "passing": Kernel("passing.cu", "passing", 128),
        "joined": Kernel("passing.cu", "joined", 256),
        "tell": Kernel("tell.cu", "tell", 256),
        "single32": Kernel("single.cu", "single", 128, ("SIDE=32", "THREAD_ROWS=2", "BLOCKS=5")),
        **{name: Kernel("sweep.cu", name, 256) for name in ("seed", "gather", "emit")},
        **{name: Kernel("tables.cu", name, 256) for name in ("merge", "multiply", "across", "descend", "present")},
        # 8 rows per thread are fastest if there are many tiles; if there are few, the "wide" variant with 4 rows per
        # thread and twice the threads is faster, because each tile takes less time
        "single64": Kernel("single.cu", "single", 128, ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=4", "UNROLLED=2")),
        "single64wide": Kernel("single.cu", "single", 256, ("SIDE=64", "THREAD_ROWS=4", "BLOCKS=2", "BY_TILE=1")),
        "lone32": Kernel("single.cu", "lone", 128, ("SIDE=32", "THREAD_ROWS=2", "BLOCKS=5")),
        "lone64": Kernel("single.cu", "lone", 128, ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=4")),
        "power8": Kernel("power.cu", "power", 256, ("ROWS=8",)),
        "power16": Kernel("power.cu", "power", 256, ("ROWS=16",)),
        "search_sweep": Kernel("search.cu", "search_sweep", 256, ("FORM_SWEEP",)),
        "search_lists": Kernel("search.cu", "search_lists", 256, ("FORM_LISTS",)),
        # searches that compute distances in 16 bits, and write them into a matrix of 32 bits
        "search_sweep_widened": Kernel("search.cu", "search_sweep", 256, ("FORM_SWEEP", "WIDEN")),
        "search_lists_widened": Kernel("search.cu", "search_lists", 256, ("FORM_LISTS", "WIDEN")),
        "hops": Kernel("hops.cu", "hops", 256),
        "hops_levels": Kernel("hops.cu", "hops", 256, ("LEVELS",)),
    }
)
#: Macros in place of those in ``KERNELS`` for 64-bit entries: a multiprocessor has registers for two blocks only.
_FLOAT64: Final = MappingProxyType(
    {
        "single64": ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=2", "UNROLLED=2"),
        "single64wide": ("SIDE=64", "THREAD_ROWS=4", "BLOCKS=2"),  # with BY_TILE it is a third slower
        "lone64": ("SIDE=64", "THREAD_ROWS=8", "BLOCKS=2"),
    }
)


@cache
def source(kernel: Kernel) -> str:
    """Return the source text of a kernel: ``common.cuh``, then its own file."""
    folder = resources.files("engine") / "kernels"
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("common.cuh", kernel.file)}
    return "\n".join(f'#line 1 "{name}"\n{text}' for name, text in texts.items())


def options(name: str, arithmetic: Arithmetic) -> tuple[str, ...]:
    """Return the compiler options of kernel ``name`` for one arithmetic; both NVRTC and nvcc accept them."""
    defines = KERNELS[name].defines
    if arithmetic.word == 8:
        defines = _FLOAT64.get(name, defines)
    return ("--std=c++17", f"-DARITHMETIC={arithmetic.name}", *(f"-D{d}" for d in defines))


def single_shared(side: int, itemsize: int) -> int:
    """Return the bytes of shared memory of a block of the single kernel: its tile of A padded by four columns, its tile
    of B, and 16 bytes for the numbers of two tasks.
    """
    return side * (side + 4 + side) * max(itemsize, 4) + 16


#: The largest number of vertices that the power kernel takes.
POWER_MOST: Final = 256


def power_shared(rows: int, n: int, itemsize: int) -> int:
    """Return the bytes of shared memory of a block of the power kernel: strips of A and of B, or partial results.

    Args:
        rows: the number of rows of the block's strip of A.
        n: the number of vertices, a multiple of 32.
        itemsize: bytes per entry.
    """
    return (rows * (POWER_MOST + 4) + max(n * 32, 16 * rows * 32)) * max(itemsize, 4)


#: Kernels of searches, which take no negative arcs.
_SEARCHES: Final = ("search_sweep", "search_lists", "hops")


def forms() -> tuple[tuple[str, Arithmetic], ...]:
    """Return all pairs of a kernel, by its name in ``KERNELS``, and an arithmetic for which it is compiled."""
    once = {arithmetic.name: arithmetic for arithmetic in ARITHMETICS.values()}.values()
    return tuple((name, arithmetic) for name in KERNELS for arithmetic in once if _is_asked_for(name, arithmetic))


def _is_asked_for(name: str, arithmetic: Arithmetic) -> bool:
    if name in ("tell", "hops_levels", "joined"):  # these kernels compute with no entries: one arithmetic suffices
        return arithmetic.name == "Int32"
    if name == "passing":  # this kernel compares lengths of paths, which is exact for whole numbers only
        return arithmetic.name in ("Int32", "Uint16")
    if name == "power16":  # in 64 bits its memory would not fit the multiprocessors of compute capability 7.0
        return arithmetic.word == 4
    if name.endswith("_widened"):
        return arithmetic.name == "Uint16"
    return arithmetic.name != "Float32Signed" or name not in _SEARCHES
