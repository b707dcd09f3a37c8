"""The budgets of device memory of the solves that run now, as limits of cupy's pools."""

from __future__ import annotations

import threading
from typing import Any

#: For each device on which solves have budgets now: the limit of cupy's pool before the first of them, the bytes that
#: the pool held then, and the budgets.
_budgets: dict[int, tuple[int, int, list[int]]] = {}
_limiting = threading.Lock()


def limit_memory(cupy: Any, device: int, memory: int | None) -> None:
    """Let cupy's pool of the current device take ``memory`` bytes more than what it cannot give back to the device,
    such as arrays of the caller's program, and not more in all than the program allows; None leaves the pool as it is.

    Budgets of solves that run at the same time are added.  Free blocks are given back before the first of them.
    Otherwise a solve could get part of a large block, which counts as a whole.

    Args:
        cupy: the module.
        device: index of the current device.
        memory: bytes of device memory; :func:`lift_limit` takes them back.
    """
    if memory is None:
        return
    with _limiting:
        if device not in _budgets:
            pool = cupy.get_default_memory_pool()
            pool.free_all_blocks()
            _budgets[device] = (int(pool.get_limit()), int(pool.total_bytes()), [])
        _budgets[device][2].append(memory)
        _set_limit(cupy, device)


def lift_limit(cupy: Any, device: int, memory: int | None) -> None:
    """Take back what :func:`limit_memory` allowed; after the last solve, the limit is again what it was before."""
    if memory is None:
        return
    with _limiting:
        _budgets[device][2].remove(memory)
        _set_limit(cupy, device)
        if not _budgets[device][2]:
            del _budgets[device]


def _set_limit(cupy: Any, device: int) -> None:
    before, base, budgets = _budgets[device]
    allowed = base + sum(budgets) if budgets else before
    cupy.get_default_memory_pool().set_limit(size=min(allowed, before) if before else allowed)
