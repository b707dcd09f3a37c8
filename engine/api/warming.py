"""Compiles the kernels that solves use, before the first solve needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from engine.execution.compiling import compile_kernels
from engine.execution.kernel_list import ListedKernel, listed_kernels, missing
from engine.graph.kernels import OWN_CACHE
from engine.model.progress import COMPILING, Monitor, given_monitor, kernels_are_kept
from storage.arguments import check_choice, check_whole
from storage.errors import SolveFailed

#: The devices whose kernels can be compiled before they are needed.
DEVICES: Final = ("cpu", "cuda")
#: The least number that may be added to a niceness; only a privileged user may add a negative one.
_NICEST: Final = -20
_NOWHERE: Final = "no folder for them can be written; NUMBA_CACHE_DIR may name one"


@dataclass(frozen=True)
class Warmed:
    """The result of :func:`warm`.

    Attributes:
        kernels: number of compiled forms that solves use (a form is a kernel for certain types of its arguments); 0 if
            numba's own cache is in use, which compiles each form on its first use.
        compiled: number of forms that this call compiled.
        shipped: number of GPU modules that were found as machine code for this GPU; 0 unless ``device`` is ``cuda``.
        gpu_compiled: number of all other GPU modules.  NVRTC has compiled them, now or earlier, into cupy's cache.
    """

    kernels: int
    compiled: int
    shipped: int = 0
    gpu_compiled: int = 0


def warm(*, processes: int | None = None, nice: int = 0, device: str = "cpu", monitor: Monitor | None = None) -> Warmed:
    """Compile every kernel that is not compiled yet, and store it for all processes of this machine.

    This takes some minutes of processor time once, and a second if all kernels are compiled.  Without it, each solve
    compiles the kernels that it needs.

    Args:
        processes: number of processes that compile for processors; None for as many as processors and memory allow.
        nice: the number that is added to the niceness of these processes.
        device: ``cpu`` for the kernels of processors; ``cuda`` also for those of the first GPU.
        monitor: receives progress, and is asked whether to stop.

    Returns:
        The number of compiled forms that solves use, and the number of forms that this call compiled, for processors
        and for GPUs.

    Raises:
        Cancelled: the monitor asked to stop; finished kernels are kept.
        InvalidRequest: ``processes`` is below 1, there is no such device, or no GPU can be used.
        SolveFailed: some kernels could not be compiled or stored; the message names the first one, and why.
    """
    processes = None if processes is None else check_whole("processes", processes, 1)
    nice, monitor = check_whole("nice", nice, _NICEST, 19), given_monitor(monitor)
    check_choice("device", device, DEVICES)
    if device == "cpu":
        return _for_processors(processes, nice, monitor)
    from engine.devices.cuda.context import ensure_kernels, open_device

    open_device()  # if there is no GPU, this fails here, and not after minutes of compiling
    found = _for_processors(processes, nice, monitor)
    shipped, compiled = ensure_kernels(monitor=monitor)
    return replace(found, shipped=shipped, gpu_compiled=compiled)


def _for_processors(processes: int | None, nice: int, watched: Monitor) -> Warmed:
    """Compile the kernels of processors that are not compiled yet."""
    if not OWN_CACHE:
        return Warmed(0, 0)
    errors = list[str]()
    waiting = missing(listed_kernels())

    def told(listed: ListedKernel, error: str) -> None:
        if error:
            errors.append(f"{listed.module}.{listed.name}: {error}")
        watched.step(1)

    if waiting and not kernels_are_kept():
        raise SolveFailed(f"{len(waiting)} kernels are not compiled and could not be kept: {_NOWHERE}")
    if waiting:
        watched.begin(COMPILING, len(waiting), "kernels")
        compile_kernels(waiting, processes=processes, nice=nice, told=told, waiting=lambda: watched.step(0))
    if errors:
        raise SolveFailed(f"{len(errors)} of {len(waiting)} kernels were not compiled; the first is {errors[0]}")
    if lost := missing(waiting):
        first = f"{lost[0].module}.{lost[0].name}"
        raise SolveFailed(f"{len(lost)} kernels were compiled and could not be kept ({first} is one): {_NOWHERE}")
    return Warmed(len(listed_kernels()), len(waiting))
