"""How the bus is measured, with fakes: which bytes of host memory each device reads and writes, and when."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from engine.devices.cuda import rates


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 16])
def test_devices_copy_other_bytes_at_the_same_time(monkeypatch, count):
    """Four devices that copied the same bytes together got a tenth of the rate of the bus."""
    steps = defaultdict(list)  # by device: the pieces of memory that it copies, in order
    memory = SimpleNamespace(ctypes=SimpleNamespace(data=10**9))

    class Runtime:
        memcpyHostToDevice, memcpyDeviceToHost = 1, 2

        @staticmethod
        def memcpyAsync(to, source, size, kind, stream):
            place, own = (source, to) if kind == 1 else (to, source)
            assert size == rates._PIECE
            steps[own // 10 - 1, kind].append((place - 10**9) // rates._PIECE)

    def allocate(cupy, shape, dtype):
        return SimpleNamespace(data=SimpleNamespace(ptr=(cupy.current[0] + 1) * 10))

    current = [0]
    stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
    cupy = SimpleNamespace(
        current=current,
        cuda=SimpleNamespace(
            runtime=Runtime,
            Stream=lambda non_blocking: stream,
            Device=lambda index: current.__setitem__(0, index) or nullcontext(),
        ),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    )
    monkeypatch.setattr(rates, "allocate", allocate)
    found = rates._both_ways([SimpleNamespace(cupy=cupy, device=k) for k in range(count)], memory)
    assert found > 0
    assert len(steps) == 2 * count
    for pieces in steps.values():
        assert sorted(set(pieces)) == sorted(pieces[: rates._PIECES])  # each piece once in a turn
    for i in range(rates._PIECES):
        together = [pieces[i] for pieces in steps.values()]
        assert len(set(together)) == len(together)
    assert {piece for pieces in steps.values() for piece in pieces} == set(range(2 * rates._PIECES))
