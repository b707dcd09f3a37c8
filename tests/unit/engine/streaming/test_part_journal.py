"""Commits of finished parts: their memory is bounded, and a later run takes up what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api.prepared import prepare
from engine.model.problem import Options
from engine.model.progress import Cancelled, Monitor
from engine.streaming import part_journal
from storage.prepared import journal
from tests.unit.engine.api.test_prepared import grid_graph
from tests.unit.engine.api.test_prepared_weights import files_of

PIECE = 1 << 14


class StopsAt(Monitor):
    """Stops a run when a phase begins."""

    def __init__(self, phase: str) -> None:
        self._phase, self._now = phase, ""

    def begin(self, phase: str, total: int, unit: str) -> None:
        self._now = phase

    def cancelled(self) -> bool:
        return self._now == self._phase


@pytest.mark.parametrize("phase", ["prepare backward", "write"])
def test_a_commit_copies_a_bounded_piece_at_a_time_and_is_taken_up(tmp_path, monkeypatch, phase):
    graph = grid_graph(24)
    prepare(graph, tmp_path / "want")
    monkeypatch.setattr(part_journal, "PIECE_BYTES", PIECE)
    committed, parts, commit = [], [], journal.PreparedJournal.commit

    def counted(kept, step, arrays, **about):
        if step in part_journal.STEPS:
            committed.append(sum(array.nbytes for array in arrays[1:]))
            parts.append(len(arrays[0]))
        commit(kept, step, arrays, **about)

    monkeypatch.setattr(journal.PreparedJournal, "commit", counted)
    # the only commit is the one at the end of a phase
    begin_backward = part_journal.PartJournal.begin_backward

    def begun(self, flat):
        self.commit()
        begin_backward(self, flat)

    monkeypatch.setattr(part_journal.PartJournal, "begin_backward", begun)
    with pytest.raises(Cancelled):
        prepare(graph, tmp_path / "p", Options(threads=1), monitor=StopsAt(phase))
    assert len(committed) > 4
    assert all(size <= 2 * PIECE for size, count in zip(committed, parts, strict=True) if count > 1)
    outcome = prepare(graph, tmp_path / "p", Options(threads=1))
    assert min(outcome.summary["resumed"][step] for step in ("eliminate", "extend")) > 0
    want, found = files_of(tmp_path / "want"), files_of(tmp_path / "p")
    assert {k: v for k, v in found.items() if k != "zarr.json"} == {k: v for k, v in want.items() if k != "zarr.json"}


def test_a_part_larger_than_a_piece_is_committed_alone(tmp_path, monkeypatch):
    graph = grid_graph(12)
    prepare(graph, tmp_path / "want")
    monkeypatch.setattr(part_journal, "PIECE_BYTES", 1)
    monkeypatch.setattr(part_journal, "EVERY", 0.0)
    prepare(graph, tmp_path / "p")
    for name, content in files_of(tmp_path / "want").items():
        assert name == "zarr.json" or np.array_equal(content, files_of(tmp_path / "p")[name])
