"""Every CUDA kernel compiles for every generation of chips, without a GPU; relax keeps all it has in registers.

nvcc is used where it is installed, else NVRTC from NVIDIA's wheel (``nvidia-cuda-nvrtc``).  Generations that the
compiler at hand does not know (CUDA 13 has dropped 7.0) are skipped and say so.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.backends.cuda_modules import ARITHMETICS, KERNELS, Arithmetic, options, source

GENERATIONS = [70, 75, 80, 90, 100]
ONCE = {a.name: a for a in ARITHMETICS.values()}
SEARCHES = ("search_sweep", "search_lists", "hops")
#: Searches take no negative arcs, and only labels of 16 bits are widened.
COMPILED = [
    *((k, a) for k in KERNELS if not k.startswith(SEARCHES) and k not in ("relax", "mirror") for a in ONCE),
    *((k, a) for k in SEARCHES for a in ONCE if a != "Float32Signed"),
    ("search_sweep_widened", "Uint16"),
    ("search_lists_widened", "Uint16"),
]


@functools.cache
def _nvrtc() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for library in sorted(Path(folder).rglob("libnvrtc.so.*")):
            if "builtins" not in library.name and "alt" not in library.name:
                return ctypes.CDLL(str(library))
    return None


@functools.cache
def _known() -> frozenset[int]:
    """Generations that the compiler at hand knows; empty where there is none."""
    if nvcc := shutil.which("nvcc"):
        listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
        return frozenset(int(x) for x in re.findall(r"sm_(\d+)", listed))
    library = _nvrtc()
    if library is None:
        return frozenset()
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(found)
    return frozenset(found)


def _report(name: str, arithmetic: Arithmetic, generation: int, folder: Path) -> str:
    """Compile one kernel and return the compiler's report of registers and spills."""
    text, flags = source(KERNELS[name]), [*options(name, arithmetic), f"-arch=sm_{generation}"]
    if nvcc := shutil.which("nvcc"):
        file = folder / "kernel.cu"
        file.write_text(text, encoding="utf-8")
        command = [nvcc, *flags, "-cubin", "-Xptxas", "-v", "-o", str(folder / "kernel.cubin"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr
    library = _nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    flags.append("--ptxas-options=-v")
    given = (ctypes.c_char_p * len(flags))(*(f.encode() for f in flags))
    status = library.nvrtcCompileProgram(program, len(flags), given)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()
    return log.value.decode()


def _require(generation: int) -> None:
    if not _known():
        if os.environ.get("APSP_REQUIRE_CUDA_COMPILER") == "1":
            pytest.fail("there is neither nvcc nor NVRTC")
        pytest.skip("there is neither nvcc nor NVRTC; install nvidia-cuda-nvrtc")
    if generation not in _known():
        pytest.skip(f"the CUDA compiler here does not know sm_{generation}")


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("arithmetic", ONCE)
def test_relax_spills_nothing(arithmetic: str, generation: int, tmp_path: Path) -> None:
    _require(generation)
    report = _report("relax", ONCE[arithmetic], generation, tmp_path)
    stores = [int(n) for n in re.findall(r"(\d+) bytes spill stores", report)]
    assert stores == [0], report
    registers = int(re.findall(r"Used (\d+) registers", report)[0])
    assert registers <= (128 if generation == 90 else 255), "two blocks of 256 threads must fit a Hopper multiprocessor"


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(("name", "arithmetic"), COMPILED)
def test_it_compiles(name: str, arithmetic: str, generation: int, tmp_path: Path) -> None:
    _require(generation)
    assert "registers" in _report(name, ONCE[arithmetic], generation, tmp_path)
