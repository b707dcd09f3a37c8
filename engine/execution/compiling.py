"""Compiles kernels ahead of the solves that need them, in several processes at the same time.

Run as ``python -m engine.execution.compiling`` this module is one of these processes: it reads lines that name kernels
from standard input, compiles each kernel, and answers each line with a line, until the input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from engine.execution.kernel_list import ListedKernel, missing_for
from engine.model.plan import Plan
from engine.model.progress import COMPILING, PhaseClock, count_compilation, kernels_are_kept
from engine.model.system import available_memory, usable_processors
from storage.matrix.working import WorkingMatrix
from storage.semirings import DENSE, MIN_PLUS, PARTS

#: Bytes of memory of a process that compiles.
PROCESS_MEMORY: Final = 300 * 2**20
#: At most this number of processes compile: more would not end sooner, as the kernels that take longest decide the
#: time.
MOST: Final = 16
#: Separate processes compile if they take less than this share of the seconds that the solving process would take for
#: all listed kernels.  The share is below 1, because that process would compile only the kernels that it calls.
WORTHWHILE: Final = 0.7
#: Seconds until a process is ready to compile.
PROCESS_START: Final = 1.0
#: Seconds between two checks of whether to stop.
LOOK: Final = 0.2
#: A store of more than this many tiles is worth loading a kernel that writes tiles, which takes 20 milliseconds.
MANY_TILES: Final = 128

Told = Callable[[ListedKernel, str], None]


def compile_kernels(
    kernels: Sequence[ListedKernel],
    *,
    processes: int | None = None,
    nice: int = 0,
    told: Told = lambda _listed, _error: None,
    waiting: Callable[[], None] = lambda: None,
) -> None:
    """Compile kernels in parallel, those that take longest first, and store them for all processes of this machine.

    If this is interrupted, finished kernels are kept and unfinished ones are lost.

    Args:
        kernels: the kernels to compile; for those that are compiled already, only their files are looked for.
        processes: number of processes; None for as many as processors and memory allow.
        nice: added to the niceness of the processes.
        told: called in this thread after each kernel, with the text of its error, which is empty if it was compiled.
        waiting: called in this thread several times a second.

    Raises:
        Whatever ``told`` and ``waiting`` raise; the processes are ended first.
    """
    queue, answers = SimpleQueue[ListedKernel](), SimpleQueue[tuple[ListedKernel, str]]()
    for listed in sorted(kernels, key=lambda one: -one.seconds):
        queue.put(listed)
    workers = [_Worker(queue, answers, nice) for _ in range(min(len(kernels), processes or _processes()))]
    left = len(kernels)
    try:
        while left:
            try:
                listed, error = answers.get(timeout=LOOK)
            except Empty:
                waiting()
                continue
            left -= 1
            told(listed, error)
    finally:
        count_compilation()
        for worker in workers:
            worker.end()


def _in_processes(kernels: Sequence[ListedKernel]) -> float:
    """Predict the wall seconds in which several processes compile ``kernels``."""
    work, longest = sum(listed.seconds for listed in kernels), max(listed.seconds for listed in kernels)
    return PROCESS_START + max(work / min(len(kernels), _processes()), longest)


def _abreast(kernels: Sequence[ListedKernel]) -> int:
    """Return the number of processes that compile ``kernels`` for a solve; 1 if the solving process itself is to
    compile the kernels that it calls.

    The solving process compiles them itself if this machine keeps no compiled kernels, because it would not find those
    that other processes compile.
    """
    if not kernels_are_kept():
        return 1
    count, alone = min(len(kernels), _processes()), sum(listed.seconds for listed in kernels)
    pays = count > 1 and bool(sys.executable) and _in_processes(kernels) < WORTHWHILE * alone
    return count if pays else 1


def _processes() -> int:
    return max(1, min(MOST, usable_processors(), available_memory() // PROCESS_MEMORY))


class _Worker:
    """A process that compiles, and the thread that gives it kernels.

    Args:
        waiting: the queue of kernels to compile.
        answers: the queue that receives each kernel with the text of its error, which is empty if it was compiled.
        nice: added to the niceness of the process.
    """

    def __init__(
        self, waiting: SimpleQueue[ListedKernel], answers: SimpleQueue[tuple[ListedKernel, str]], nice: int
    ) -> None:
        self._waiting, self._answers = waiting, answers
        # the module search path of this process, so that the new process imports the same packages
        paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path)]
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-P", "-m", __name__, str(nice)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        given, taken = self._process.stdin, self._process.stdout
        if given is None or taken is None:
            return
        while True:
            try:
                listed = self._waiting.get_nowait()
            except Empty:
                return
            error = "the process that compiled it ended"
            with contextlib.suppress(OSError, ValueError):
                given.write(listed.line() + "\n")
                given.flush()
                answer = taken.readline()
                error = json.loads(answer) if answer else error
            self._answers.put((listed, error))

    def end(self) -> None:
        """End the process; a kernel that it has not finished is lost."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def hasten(writer: WorkingMatrix) -> None:
    """Let a large store in memory write its tiles by a kernel, if that kernel is compiled."""
    if writer.in_memory and writer.grid.tiles > MANY_TILES:
        from engine.streaming.tile_files import ready_put

        writer.put = ready_put()
        for quantity in writer.also.values():
            quantity.put = writer.put


def needed(plan: Plan) -> list[ListedKernel]:
    """Return the kernels that the usual solve by ``plan`` needs and that are not compiled."""
    if plan.device != "cpu" or plan.workers:
        return []
    if plan.semiring != MIN_PLUS:
        return missing_for("products" if plan.algorithm in (PARTS, DENSE) else "semirings")
    use = "streamed" if plan.streaming is not None else plan.algorithm
    if use == "prepared":
        use = "partitioned"  # the list for "partitioned" has all kernels of "prepared", and a few more for rows
    uses = f"{use} {plan.searched}", *(f"{sums} {plan.searched}" for sums in plan.sums)
    return list(dict.fromkeys(listed for use in uses for listed in missing_for(use)))


def seconds_to_compile(kernels: Sequence[ListedKernel]) -> float:
    """Predict the wall seconds that a solve waits for the compilation of ``kernels``."""
    return _in_processes(kernels) if _abreast(kernels) > 1 else sum(listed.seconds for listed in kernels)


def compile_for(kernels: Sequence[ListedKernel], clock: PhaseClock) -> None:
    """Compile ``kernels`` in a separate phase if several processes are faster than this one alone.

    Otherwise each kernel is compiled when it is first called, during the phase that calls it.

    Args:
        kernels: the kernels that are not compiled.
        clock: receives the phase; its monitor can stop it.

    Raises:
        Cancelled: the monitor asks to stop.
    """
    # ``_abreast`` surveys processors and memory, which takes as long as planning: too long for one kernel
    count = _abreast(kernels) if len(kernels) > 1 else 1
    if count < 2:
        return
    clock.begin(COMPILING, len(kernels), "kernels")
    compile_kernels(kernels, processes=count, told=lambda _kernel, _error: clock.step(1), waiting=lambda: clock.step(0))
    clock.stop()


def main() -> None:
    """Compile the kernels that standard input names."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(int(sys.argv[1]))
    for listed in _given():
        try:
            listed.compile()
            error = ""
        except Exception as failure:  # the solve that needs the kernel will raise the same error
            error = f"{type(failure).__name__}: {failure}".partition("\n")[0]
        print(json.dumps(error), flush=True)


def _given() -> Iterator[ListedKernel]:
    for line in sys.stdin:
        yield ListedKernel.of_line(line)


if __name__ == "__main__":
    main()
