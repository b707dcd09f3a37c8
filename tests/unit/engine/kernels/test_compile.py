"""Every CUDA kernel compiles for every generation of chips, without a GPU; relax keeps all it has in registers.

Compilers: NVRTC, which users' machines compile with, from whichever of NVIDIA's wheels there are, then nvcc where it is
installed.  Each generation takes the first that knows it: CUDA 13 has dropped 7.0, which the NVRTC of CUDA 12, a
development dependency, still knows.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.devices.cuda.code.building import Nvrtc, compilers
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS, Arithmetic, options, source
from engine.devices.cuda.code.prebuilt import all_modules

GENERATIONS = [70, 75, 80, 90, 100]
OLDEST, NEWEST = GENERATIONS[0], GENERATIONS[-1]
ONCE = {a.name: a for a in ARITHMETICS.values()}
#: Each has its own test of relax, and one file with the same options is compiled once.
FORMS = [(module.name, module.arithmetic) for module in all_modules() if module.name != "relax"]
TYPICAL = ("Uint16", "Float32Nonnegative")


class Nvcc:
    """The compiler of an installed toolkit."""

    def __init__(self, program: str) -> None:
        self.program = program
        listed = subprocess.run([program, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
        self.knows = frozenset(int(x) for x in re.findall(r"sm_(\d+)", listed))

    def report(self, text: str, flags: list[str], folder: Path) -> str:
        """Compile and return the report of registers and spills."""
        file = folder / "kernel.cu"
        file.write_text(text, encoding="utf-8")
        command = [self.program, *flags, "-cubin", "-Xptxas", "-v", "-o", str(folder / "kernel.cubin"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr


class WithNvrtc:
    """The library of a wheel."""

    def __init__(self, library: Nvrtc) -> None:
        self.compiler, self.knows = library, library.capabilities

    def report(self, text: str, flags: list[str], folder: Path) -> str:
        """Compile and return the report of registers and spills."""
        *others, architecture = flags
        return self.compiler.compile(text, [*others, "--ptxas-options=-v"], architecture.removeprefix("-arch="))[1]


@functools.cache
def _compilers() -> list[Nvcc | WithNvrtc]:
    found: list[Nvcc | WithNvrtc] = [WithNvrtc(library) for library in compilers()]
    nvcc = shutil.which("nvcc")
    return [*found, Nvcc(nvcc)] if nvcc else found


def _report(name: str, arithmetic: Arithmetic, generation: int, folder: Path) -> str:
    """Compile one kernel and return the compiler's report of registers and spills; skip where no compiler can."""
    compiler = next((c for c in _compilers() if generation in c.knows), None)
    if compiler is None:
        message = f"no CUDA compiler here knows sm_{generation}; install nvidia-cuda-nvrtc-cu12"
        if os.environ.get("APSP_REQUIRE_CUDA_COMPILER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return compiler.report(source(KERNELS[name]), [*options(name, arithmetic), f"-arch=sm_{generation}"], folder)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("arithmetic", ONCE)
def test_relax_spills_nothing(arithmetic: str, generation: int, tmp_path: Path) -> None:
    report = _report("relax", ONCE[arithmetic], generation, tmp_path)
    stores = [int(n) for n in re.findall(r"(\d+) bytes spill stores", report)]
    assert stores == [0], report
    registers = int(re.findall(r"Used (\d+) registers", report)[0])
    assert registers <= (128 if generation == 90 else 255), "two blocks of 256 threads must fit a Hopper multiprocessor"


def _compiled(generations: list[int], marks: list[pytest.MarkDecorator]) -> list[object]:
    """Whole numbers and fractions everywhere, the other types on the oldest.  What is tuned for, 90, is compiled as a
    whole in the tests of building.
    """
    forms = [(k, a.name, g) for k, a in FORMS for g in generations if g == OLDEST or a.name in TYPICAL]
    return [pytest.param(*form, marks=marks) for form in forms]


@pytest.mark.parametrize(
    ("name", "arithmetic", "generation"),
    [*_compiled([OLDEST, NEWEST], [pytest.mark.slow]), *_compiled([75, 80], [pytest.mark.long])],
)
def test_it_compiles(name: str, arithmetic: str, generation: int, tmp_path: Path) -> None:
    assert "registers" in _report(name, ONCE[arithmetic], generation, tmp_path)
