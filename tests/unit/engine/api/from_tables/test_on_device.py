"""Prepared graphs asked on a device, without a GPU: what is refused, what falls back, and what is asked of the GPU."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api.from_tables import on_device
from engine.api.from_tables.on_device import DevicePreparedMatrix
from engine.api.prepared import prepare
from engine.api.prepared_matrix import PreparedMatrix, open_result
from engine.api.solve import solve_to_store
from engine.devices.cuda.tables import resident
from engine.model.problem import Options
from storage.errors import DoesNotFit, InvalidRequest
from tests.stores import line_graph
from tests.unit.engine.api.test_prepared import grid_graph


@pytest.fixture
def place(tmp_path):
    prepare(grid_graph(12), tmp_path / "p")
    return tmp_path / "p"


class Answers:
    """Stands for tables on a device: answers like the processors, and counts."""

    made = 0

    def __init__(self, tables, *, memory, threads):
        Answers.made += 1
        self.tables, self.memory, self.asked, self.bytes, self.released = tables, memory, [], 4096, False

    def pairs(self, rows, columns):
        self.asked.append(("pairs", len(rows), len(columns)))
        return np.zeros(len(rows), np.int32)

    def rows(self, vertices, *, forward=True, others=None):
        wide = len(self.tables.rows) if others is None else len(others)
        self.asked.append(("rows" if forward else "columns", len(vertices)))
        return np.zeros((len(vertices), wide), np.int32)

    def block(self, rows, columns):
        self.asked.append(("block", len(rows), len(columns)))
        return np.zeros((len(rows), len(columns)), np.int32)

    def release(self):
        self.released = True


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(resident, "usable_memory", lambda memory, index=0: 10**9 if memory is None else memory)
    monkeypatch.setattr(resident, "DeviceTables", Answers)
    monkeypatch.setattr(on_device, "_FEW", 50)


def test_large_questions_go_to_the_device_and_small_ones_stay(place, device):
    some = np.arange(60)
    with open_result(place, device="cuda", device_memory=10**8) as there, open_result(place) as here:
        assert isinstance(there, DevicePreparedMatrix)
        np.testing.assert_array_equal(there.entries(some[:49], some[:49]), here.entries(some[:49], some[:49]))
        np.testing.assert_array_equal(there.block(some[:7], some[:7]), here.block(some[:7], some[:7]))
        assert (there.device_bytes, Answers.made) == (0, 0)
        there.entries(some, some)
        there.rows(some[:2])
        there.columns(some[:3])
        there.block(some, some[:10])
        there.block(some, some)
        tables = there._on_device
        assert tables.asked == [("pairs", 60, 60), ("rows", 2), ("columns", 3), ("block", 60, 10), ("rows", 60)]
        assert (there.device_bytes, tables.memory, Answers.made) == (4096, 10**8, 1)
        there.release()
        assert (there.device_bytes, tables.released) == (0, True)
        there.rows([0])
        again = there._on_device
    assert again is not tables
    assert again.released


def test_questions_are_checked_as_on_processors(place, device):
    with open_result(place, device="cuda") as there, pytest.raises(InvalidRequest, match="60 sources do not pair"):
        there.entries(np.arange(60), np.arange(59))


def test_a_budget_is_checked_when_it_is_opened(place, device):
    with pytest.raises(DoesNotFit, match="do not fit on the GPU"):
        open_result(place, device="cuda", device_memory=10**5)
    with open_result(place, device="auto", device_memory=10**5) as stays:
        assert type(stays) is PreparedMatrix
        assert stays.entries([3], [3]) == 0


def test_without_a_gpu_cuda_is_refused_and_auto_stays(place, monkeypatch):
    def none(memory, index=0):
        raise InvalidRequest("there is no NVIDIA driver on this machine", field="device")

    monkeypatch.setattr(resident, "usable_memory", none)
    with pytest.raises(InvalidRequest, match="no NVIDIA driver"):
        open_result(place, device="cuda")
    with open_result(place, device="auto") as stays:
        assert type(stays) is PreparedMatrix


def test_a_solved_store_is_not_computed(tmp_path, device):
    solve_to_store(line_graph(4), Options(device="cpu"), tmp_path / "s.zarr")
    with pytest.raises(InvalidRequest, match="is a solved store"):
        open_result(tmp_path / "s.zarr", device="cuda")
    with open_result(tmp_path / "s.zarr", device="auto") as solved:
        assert solved.n == 4


def test_memory_that_is_gone_when_a_question_comes(place, device, monkeypatch):
    """Another program may have taken it since the result was opened."""

    def full(self, *given, **options):
        raise DoesNotFit("the GPU has 5 of 10 bytes free", resource="device memory", needed=7, available=5)

    some = np.arange(60)
    monkeypatch.setattr(Answers, "pairs", full)
    with open_result(place, device="cuda") as there, pytest.raises(DoesNotFit, match="5 of 10 bytes"):
        there.entries(some, some)
    with open_result(place, device="auto") as there, open_result(place) as here:
        assert there.rows([0]).sum() == 0  # the stand-in's
        tables = there._on_device
        np.testing.assert_array_equal(there.entries(some, some[::-1]), here.entries(some, some[::-1]))
        assert (tables.released, there.device_bytes) == (True, 0)
        np.testing.assert_array_equal(there.rows([0, 3]), here.rows([0, 3]))
        np.testing.assert_array_equal(there.block(some, some), here.block(some, some))
        assert there.device_bytes == 0
