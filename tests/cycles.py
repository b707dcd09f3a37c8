"""Whether things go by themselves, or lie in cycles until some collection finds them."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


@contextmanager
def no_collection() -> Iterator[None]:
    """Only what nothing refers to goes; what lies in cycles stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Unclosed(Generic[T]):
    """A generator as Python 3.12.2 and 3.12.3 (Ubuntu 24.04) have them: ``close`` keeps its local variables alive."""

    def __init__(self, generator: Generator[T, None, None]) -> None:
        self._generator = generator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._generator)

    def close(self) -> None:
        """Free nothing."""


def keepers(thing: object, depth: int = 6) -> list[str]:
    """Return what refers to a thing, directly and over other things, to say why it is still there."""
    found: list[str] = []
    here, seen = [thing], {id(thing)}
    for level in range(depth):
        above = [one for one in gc.get_referrers(*here) if id(one) not in seen and one is not here]
        here = [one for one in above if not isinstance(one, ModuleType | type) and not _of_module(one)][:20]
        seen.update(map(id, (*above, above, here)))
        found += [f"{level}: {_said(one)}" for one in here]
    return found


def _of_module(one: object) -> bool:
    return isinstance(one, dict) and "__name__" in one


def _said(one: object) -> str:
    if isinstance(one, FrameType):
        return f"frame of {one.f_code.co_qualname}, line {one.f_lineno} of {one.f_code.co_filename}"
    return f"{type(one).__name__} {str(list(one)[:5]) if isinstance(one, dict) else repr(one)}"[:200]
