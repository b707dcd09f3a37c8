"""Compiles kernels ahead of time, also for GPUs that this machine does not have.  This needs NVRTC, but neither a GPU
nor cupy.

    python -m engine.devices.cuda.code.building [--architecture sm_90 ... | --here] [--out FOLDER] [--threads N]

NVRTC comes from the wheel nvidia-cuda-nvrtc-cu12, which compiles for all architectures from 7.0 to 12.1; drivers of
CUDA 12 and of CUDA 13 accept its machine code.  Kernels that an archive holds already are not compiled again.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.devices.cuda.code import prebuilt
from engine.devices.cuda.code.kernel_set import KERNELS, options, source
from engine.devices.cuda.code.prebuilt import ARCHITECTURES, Module, all_modules, missing, write_archive


class BuildFailedError(Exception):
    """A kernel does not compile, or there is no compiler; the message says which."""


@dataclass(frozen=True)
class Built:
    """The content of one archive after a build.

    Attributes:
        path: the path of the archive.
        compiled: number of modules that were compiled.
        kept: number of modules that the archive held already.
        bytes: size of the archive in bytes.
    """

    path: Path
    compiled: int
    kept: int
    bytes: int


class Nvrtc:
    """The compiler NVRTC, loaded from one of NVIDIA's libraries.

    Args:
        path: the path of the library.
    """

    def __init__(self, path: Path) -> None:
        self._library: Any = ctypes.CDLL(str(path))
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(known)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.version = (major.value, minor.value)
        self.capabilities = frozenset(known)

    def knows(self, architecture: str) -> bool:
        """Return whether this compiler supports ``architecture``, such as ``sm_90`` or ``compute_100``."""
        return int(architecture.partition("_")[2]) in self.capabilities

    def compile(self, text: str, flags: Sequence[str], architecture: str) -> tuple[bytes, str]:
        """Compile a source; several threads may call this at the same time.

        Args:
            text: the source.
            flags: compiler options.
            architecture: ``sm_90`` for machine code, ``compute_90`` for PTX.

        Returns:
            The code, and the compiler's log.

        Raises:
            BuildFailedError: the source does not compile.
        """
        program, given = ctypes.c_void_p(), [*flags, f"-arch={architecture}"]
        made = self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        self._check(made, "a program could not be made")
        try:
            words = (ctypes.c_char_p * len(given))(*(word.encode() for word in given))
            status = self._library.nvrtcCompileProgram(program, len(given), words)
            said = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            self._check(status, said)
            return self._bytes(program, "CUBIN" if architecture.startswith("sm_") else "PTX"), said
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"no {what}")
        held = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, held), f"no {what}")
        return held.raw

    def _check(self, status: int, said: str) -> None:
        if status:
            raise BuildFailedError(f"{self._library.nvrtcGetErrorString(status).decode()}: {said}")


def compilers() -> list[Nvrtc]:
    """Return the compilers of NVIDIA's wheels in this environment, the oldest first."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations or []) if spec else []
    found = [Nvrtc(library) for place in places for library in Path(place).rglob("libnvrtc.so.*")]
    return sorted(found, key=lambda compiler: compiler.version)


def build_kernels(
    out: Path | None = None,
    architectures: Sequence[str] = ARCHITECTURES,
    *,
    modules: Sequence[Module] | None = None,
    threads: int | None = None,
) -> Iterator[Built]:
    """Compile the modules that the archives lack, and yield a description of each archive after the build.

    Args:
        out: folder of the archives; None for the folder that belongs to this installation.
        architectures: the architectures to build for.
        modules: the modules to build; None for all.  An archive that is written holds no other modules.
        threads: the number of compilations at a time; None for one per processor.

    Raises:
        BuildFailedError: there is no compiler for an architecture, or a kernel does not compile.
        OSError: the folder cannot be written.
    """
    out = out or prebuilt.folder()
    out.mkdir(parents=True, exist_ok=True)
    wanted, found = all_modules() if modules is None else modules, compilers()
    with ThreadPoolExecutor(threads or os.cpu_count() or 1, "apsp-nvrtc") as pool:
        for architecture in architectures:
            path = out / f"{architecture}.zip"
            todo = missing(wanted, path, architecture)
            if todo:
                compiler = next((c for c in found if c.knows(architecture)), None)
                if compiler is None:
                    raise BuildFailedError(
                        f"no compiler here knows {architecture}; install the wheel nvidia-cuda-nvrtc-cu12"
                    )
                codes = {module.key(architecture): code for module, code in _kept(wanted, path, architecture)}
                jobs = [pool.submit(_compiled, compiler, module, architecture) for module in todo]
                codes |= {module.key(architecture): job.result() for module, job in zip(todo, jobs, strict=True)}
                made_by = f"{architecture}, NVRTC {'.'.join(map(str, compiler.version))}, {len(codes)} modules"
                write_archive(path, codes, made_by=made_by)
            yield Built(path, len(todo), len(wanted) - len(todo), path.stat().st_size)


def architectures_here() -> list[str]:
    """Return the best architecture for each kind of GPU in this machine; an empty list if NVIDIA's tool finds no
    GPU.
    """
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    found = {(int(major), int(minor)) for major, minor in re.findall(r"^(\d+)\.(\d+)$", said, re.MULTILINE)}
    best = [next(prebuilt.architectures_of(capability), None) for capability in sorted(found)]
    return list(dict.fromkeys(architecture for architecture in best if architecture is not None))


def _kept(wanted: Sequence[Module], path: Path, architecture: str) -> Iterator[tuple[Module, bytes]]:
    """Yield the modules that the archive holds already, with their code."""
    for module in wanted:
        code = prebuilt.read(path, module.key(architecture))
        if code is not None:
            yield module, code


def _compiled(compiler: Nvrtc, module: Module, architecture: str) -> bytes:
    try:
        return compiler.compile(source(KERNELS[module.name]), options(module.name, module.arithmetic), architecture)[0]
    except BuildFailedError as error:
        raise BuildFailedError(f"{module.name} of {module.arithmetic.name} for {architecture}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Build archives, and print what they hold; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.devices.cuda.code.building", description="Compile kernels ahead."
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--architecture", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    which.add_argument("--here", action="store_true", help="for the GPUs in this machine")
    parser.add_argument("--out", type=Path, default=None, help="folder of the archives")
    parser.add_argument("--threads", type=int, default=None, help="compilations at a time")
    given = parser.parse_args(arguments)
    try:
        architectures = architectures_here() if given.here else given.architecture
        for built in build_kernels(given.out, architectures, threads=given.threads):
            said = f"{built.compiled} modules compiled, {built.kept} kept, {built.bytes:,} bytes"
            if built.compiled or not given.here:
                print(f"{built.path.name}: {said}", file=sys.stderr, flush=True)
    except (BuildFailedError, OSError) as error:
        print(f"kernels are not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
