"""Raises KeyboardInterrupt where tests want it, as Ctrl-C raises it anywhere."""

from __future__ import annotations

import dis
import functools
import sys
import threading
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

#: The number of the tool that counts instructions; coverage, profilers and debuggers have others.
_TOOL = 4


class Interruption:
    """Raises KeyboardInterrupt in this thread at step number ``at`` that it takes in some modules.

    Args:
        at: number of the step, from 1.
        modules: those whose steps count.
        every: a step is any instruction; else only those at which Python looks for signals, which are calls that return
            and are begun, and jumps back.
    """

    def __init__(self, at: int, *modules: ModuleType, every: bool = False) -> None:
        self._left, self._modules, self._every = at, modules, every
        self._files, self._raised = {module.__file__ for module in modules}, False
        self._last: dict[int, int] = {}  # by the id of a frame: the offset of its last instruction

    def hits(self, work: Any) -> bool:
        """Whether ``work()`` was interrupted; it had fewer steps if not."""
        watch = self._monitored if sys.version_info >= (3, 12) else self._traced
        try:
            watch(work)
        except KeyboardInterrupt:
            return True
        finally:
            self._last.clear()
        return False

    def _traced(self, work: Any) -> None:
        """Call ``work()``, and have Python 3.11 call :meth:`_trace` meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count the instructions of the modules; what Python calls to trace."""
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._step(frame)
        elif event == "return":
            self._last.pop(id(frame), None)
        return self._trace

    def _monitored(self, work: Any) -> None:
        """Call ``work()``, and have Python 3.12 or newer call :meth:`_step` at each instruction of the modules.

        There ``sys.settrace`` misses instructions of functions that it sees for the first time, and crashes where
        another thread runs a generator.
        """
        monitoring, me = sys.monitoring, threading.get_ident()  # type: ignore[attr-defined,unused-ignore]
        events, codes = monitoring.events, _codes(self._modules)

        begun: dict[int, CodeType] = {}  # by the id of a frame; Python looks for no signals before a frame has begun

        def instruction(code: CodeType, offset: int) -> None:
            frame = sys._getframe(1)
            if threading.get_ident() == me and begun.get(id(frame)) is code:
                self._step(frame)

        def begin(code: CodeType, offset: int) -> None:
            frame = sys._getframe(1)
            if threading.get_ident() == me:
                begun[id(frame)] = code
                self._last.pop(id(frame), None)

        watched = {events.INSTRUCTION: instruction, events.PY_START: begin, events.PY_RESUME: begin}
        monitoring.use_tool_id(_TOOL, "interruption")
        try:
            for event, call in watched.items():
                monitoring.register_callback(_TOOL, event, call)
            for code in codes:
                monitoring.set_local_events(_TOOL, code, events.INSTRUCTION | events.PY_START | events.PY_RESUME)
            work()
        finally:
            for code in codes:
                monitoring.set_local_events(_TOOL, code, 0)
            for event in watched:
                monitoring.register_callback(_TOOL, event, None)
            monitoring.free_tool_id(_TOOL)

    def _step(self, frame: FrameType) -> None:
        """Count an instruction that ``frame`` is about to run, and interrupt at the chosen one."""
        if self._every or self._looks(frame):
            self._left -= 1
            if self._left <= 0 and not self._raised and not _destroys(frame):
                self._left, self._raised = 0, True
                raise KeyboardInterrupt

    def _looks(self, frame: FrameType) -> bool:
        """Whether Python has looked for signals between the last instruction of the frame and this one."""
        last, self._last[id(frame)] = self._last.get(id(frame)), frame.f_lasti
        if last is None:
            return True
        name = dis.opname[frame.f_code.co_code[last]]
        # Python looks for signals at the end of the last instruction: what handles exceptions there must be the same
        regions = dis._parse_exception_table(frame.f_code)  # type: ignore[attr-defined]
        handlers = [[one.target for one in regions if one.start <= at < one.end] for at in (last, frame.f_lasti)]
        return (name.startswith("CALL") or "JUMP_BACKWARD" in name) and handlers[0] == handlers[1]


def _codes(modules: tuple[ModuleType, ...]) -> set[CodeType]:
    """The code of all functions of some modules, found from their names, as the garbage collector may not list all."""
    files, found, seen = {module.__file__ for module in modules}, set[CodeType](), set[int]()
    left: list[Any] = [value for module in modules for value in vars(module).values()]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, CodeType):
            if one.co_filename in files:
                found.add(one)
                left += one.co_consts
        elif isinstance(one, FunctionType):
            left += [one.__code__, *vars(one).values()]  # what a decorator has wrapped is an attribute
        elif isinstance(one, type) and sys.modules.get(one.__module__) in modules:
            left += vars(one).values()
        elif isinstance(one, property):
            left += [one.fget, one.fset, one.fdel]
        elif isinstance(one, (staticmethod, classmethod, functools.cached_property)):
            left.append(one.func if isinstance(one, functools.cached_property) else one.__func__)
    return found


def _destroys(frame: FrameType) -> bool:
    """Whether Python is destroying an object: it reports what is raised there and goes on."""
    one: FrameType | None = frame
    while one is not None and one.f_code.co_name != "__del__":
        one = one.f_back
    return one is not None


def by_itself(work: Any, seconds: float = 300) -> Any:
    """The value of ``work()``, which must not hang: it ends within ``seconds``."""
    values: list[Any] = []
    thread = threading.Thread(target=lambda: values.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for ever"
    (value,) = values
    return value
