"""``apsp warm``: compiles the kernels that solves use, before the first solve."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

from engine.api.warming import warm as warm_kernels
from service.cli.commands.interrupts import INTERRUPTS
from service.cli.commands.output import emit, emit_json
from service.cli.progress import ProgressMonitor
from service.units import format_seconds


def warm(processes: int | None, device: str, *, as_json: bool) -> None:
    """Compile the kernels that are not compiled yet, and report what was done.

    Args:
        processes: how many processes compile at the same time; None for as many as processors and memory allow.
        device: ``cpu``, or ``cuda`` to compile the kernels of the GPU, too.
        as_json: whether to print one JSON object instead of text.
    """
    began = time.perf_counter()
    with ProgressMonitor(sys.stderr, INTERRUPTS.requested, explain=False) as monitor, INTERRUPTS.politely():
        found = warm_kernels(processes=processes, device=device, monitor=monitor)
    seconds = time.perf_counter() - began
    if as_json:
        emit_json({**asdict(found), "seconds": seconds})
        return
    if not found.kernels:
        emit("with this version of numba, kernels cannot be compiled ahead; each is compiled on first use")
    elif found.compiled:
        emit(f"{found.compiled} of {found.kernels} kernels compiled in {format_seconds(seconds)}")
    else:
        emit(f"all {found.kernels} kernels are compiled")
    if device == "cuda":
        of = found.shipped + found.gpu_compiled
        emit(
            f"all {of} modules for the GPU are ready: {found.shipped} were there, {found.gpu_compiled} in cupy's cache"
        )
