"""Whether things go by themselves, or lie in cycles until some collection finds them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Only what nothing refers to goes; what lies in cycles stays."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
