"""Describes this machine: processors, memory, disk, and the rates on which predictions rest."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Final

from engine.model.problem import Device, Machine
from engine.model.system import available_memory, control_groups, resident_bytes, usable_processors, with_quota
from storage.errors import ApspError, InvalidRequest
from storage.files.memory import in_memory

#: Updates a second of one thread, by type, conservative for a core with 256-bit vectors; see benchmarks/kernels.
RELAX_RATE = {"uint16": 6.0e10, "int32": 3.4e10, "float32": 2.2e10, "float64": 1.0e10}

#: Arcs a second that one thread scans in searches, heap work included.
SEARCH_RATE = 6.0e7

#: Bytes that kernels and their compiler take once they are loaded.
KERNELS = 104 * 2**20
#: The part of ``KERNELS`` that is taken once planning has loaded the compiler, with kernels for a bound on distances.
FIRST_KERNELS = 80 * 2**20
#: _SOLVING is the package of the kernels of solves.  _COMPUTES holds this name once the process is known to have loaded
#: such a kernel.
_SOLVING: Final = "engine.devices.cpu."
_COMPUTES: Final = set[str]()

#: Free memory is read again after MOMENT seconds, or if it was not more than MUCH bytes.
MOMENT: Final = 0.1
MUCH: Final = 4 * 2**30
#: What was read last: when, by ``time.monotonic``; the control groups with a quota of processor time; the bytes of
#: memory that this process may use; those that it held; and for little work the machines, by the number of threads.
_SEEN: Final = list[tuple[float, tuple[str, ...], int, int, dict[int | None, Machine]]]()

#: Bytes a second written to a store on a disk, summary and checksums included.
WRITE_RATE = 8.0e8
#: Bytes a second that each thread writes to a store in memory, and the number of threads for which that was measured:
#: 16 threads wrote 17 to 19 GB/s, 8 threads 11 to 12, and one thread 1.8 (decision 278).
MEMORY_WRITE_RATE = 1.1e9
WRITING_THREADS = 16


def survey(
    *,
    out: Path | None = None,
    memory: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    device_memory: int | None = None,
    little: bool = False,
) -> Machine:
    """Return the machine as this process may use it.

    Args:
        out: path of the store; the free disk space is that of its nearest existing parent.  None for no disk.
        memory: the user's budget for the whole process in bytes; it counts only if it is less than what is free.
        threads: the number of processors to use; None for all that the process may run on.
        device: the option ``device``; if it is ``cpu``, no GPU is looked for.
        device_memory: the user's budget of the GPU's memory in bytes.
        little: whether the work takes so little memory that, without a budget, the memory which the process held a
            moment ago tells whether there is enough, and so little time that the processors of a moment ago are enough
            to know.

    Raises:
        InvalidRequest: more threads than processors.
    """
    groups, known, before, machines = _recent()
    alike = little and memory is None and out is None and device == "cpu"
    if alike and threads in machines:
        return machines[threads]
    most = usable_processors(groups)
    count = threads or most
    if count > most:
        raise InvalidRequest(f"threads is {count}, but the process may use {most} processors", field="threads")
    cuda, no_cuda = (None, "no GPU was looked for") if device == "cpu" else find_cuda(device_memory)
    held = before if before and little and memory is None else resident_bytes()
    free = known or available_memory(groups) + held
    if not known:
        _SEEN[:] = [(time.monotonic(), with_quota(groups), free, held, machines)]
    # every estimate counts the bytes of kernels, so those that this process has loaded are not counted as resident
    first = FIRST_KERNELS if "engine.graph._walks" in sys.modules else 0
    resident = max(0, held - (KERNELS if computes() else first))
    machine = Machine(
        threads=count,
        memory=free if memory is None else min(memory, free),
        resident=resident,
        disk=None if out is None else shutil.disk_usage(_existing(out)).free,
        relax_rate={name: rate * count for name, rate in RELAX_RATE.items()},
        search_rate=SEARCH_RATE * count,
        write_rate=WRITE_RATE if out is None else _write_rate(_existing(out), count),
        cuda=cuda,
        no_cuda=no_cuda,
        free=free,
    )
    if alike and computes():  # until kernels are loaded, their bytes are not told from those of the process
        machines[threads] = machine
    return machine


def _write_rate(folder: Path, threads: int) -> float:
    """Return the bytes a second that threads write into a store in ``folder``."""
    return MEMORY_WRITE_RATE * min(threads, WRITING_THREADS) if in_memory(folder) else WRITE_RATE


def _recent() -> tuple[tuple[str, ...], int, int, dict[int | None, Machine]]:
    """Return the control groups that limit the processors of this process, the memory that it may use, the memory that
    it held, and the machines of little work, if they were read a moment ago and the first memory is much; else all its
    control groups, 0 in place of both numbers, and no machines.

    Reading it takes longer than all other planning of a small graph.  What this process itself takes in the meantime
    leaves the sum of the memory that is free and the memory that the process holds as it was.
    """
    if _SEEN and time.monotonic() - _SEEN[0][0] < MOMENT and _SEEN[0][2] > MUCH:
        return _SEEN[0][1:]
    return control_groups(), 0, 0, {}


def computes() -> bool:
    """Return whether this process has loaded kernels of solves; once it has, it keeps them."""
    if _COMPUTES:
        return True
    kernels = sys.modules.get("engine.graph.kernels")
    if kernels is None or not kernels.OWN_CACHE:
        found = "engine.devices.cpu.relax" in sys.modules
    else:
        found = bool(kernels.is_loaded(_SOLVING))
    _COMPUTES.update([_SOLVING] if found else [])
    return found


def find_cuda(budget: int | None) -> tuple[Device | None, str]:
    """Return the usable GPU, or None and the reason; errors of the driver or of a broken installation become the
    reason.
    """
    try:
        from engine.devices.cuda.context import find_device

        return find_device(budget), ""
    except ApspError as error:
        return None, str(error)
    except Exception as error:  # a driver and a package that do not match fail in many ways
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return None, f"the CUDA installation cannot be used ({what})"


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
