"""Raises KeyboardInterrupt where tests want it, as Ctrl-C raises it anywhere."""

from __future__ import annotations

import dis
import sys
import threading
from types import FrameType, ModuleType
from typing import Any


class Interruption:
    """Raises KeyboardInterrupt in this thread at step number ``at`` that it takes in some modules.

    Args:
        at: number of the step, from 1.
        modules: those whose steps count.
        every: a step is any instruction; else only those at which Python looks for signals, which are calls that return
            and are begun, and jumps back.
    """

    def __init__(self, at: int, *modules: ModuleType, every: bool = False) -> None:
        self._left, self._files, self._every = at, {module.__file__ for module in modules}, every
        self._last: dict[FrameType, int] = {}

    def hits(self, work: Any) -> bool:
        """Whether ``work()`` was interrupted; it had fewer steps if not."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 traces instructions only if a frame asked before settrace
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            self._last.clear()
        return False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count the instructions of the modules; what Python calls to trace."""
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and (self._every or self._looks(frame)):
            self._left -= 1
            if self._left <= 0 and not _destroys(frame):
                self._left = 0
                raise KeyboardInterrupt
        elif event == "return":
            self._last.pop(frame, None)
        return self

    def _looks(self, frame: FrameType) -> bool:
        """Whether Python has looked for signals between the last instruction of the frame and this one."""
        last, self._last[frame] = self._last.get(frame), frame.f_lasti
        if last is None:
            return True
        name = dis.opname[frame.f_code.co_code[last]]
        # Python looks for signals at the end of the last instruction: what handles exceptions there must be the same
        regions = dis._parse_exception_table(frame.f_code)  # type: ignore[attr-defined]
        handlers = [[one.target for one in regions if one.start <= at < one.end] for at in (last, frame.f_lasti)]
        return (name.startswith("CALL") or "JUMP_BACKWARD" in name) and handlers[0] == handlers[1]


def _destroys(frame: FrameType) -> bool:
    """Whether Python is destroying an object: it reports what is raised there and goes on."""
    one: FrameType | None = frame
    while one is not None and one.f_code.co_name != "__del__":
        one = one.f_back
    return one is not None


def by_itself(work: Any, seconds: float = 60) -> Any:
    """The value of ``work()``, which must not hang: it ends within ``seconds``."""
    values: list[Any] = []
    thread = threading.Thread(target=lambda: values.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for ever"
    (value,) = values
    return value
