"""Opportunities as the client sends them: a table whose first column names vertices."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from service.client.asking import Patience
from service.client.names import Names
from service.client.steps import Work
from service.client.tables import sent_table
from storage.tables.uploaded import normal_table


def uploaded(given: Any) -> pl.DataFrame:
    """The table as the service keeps it, read from the file that the client would send."""
    flow = sent_table("opportunities", given, Names(), Patience())
    step = next(flow)
    assert isinstance(step, Work)
    step.call()
    send = flow.send(None)
    made = normal_table(send.request.file, 100, 100)  # type: ignore[union-attr, arg-type]
    flow.close()
    try:
        return pl.read_parquet(made)
    finally:
        made.unlink()


@pytest.mark.parametrize("names", [("jobs",), ("vertex",), ("Vertex", "jobs"), ("vertex", "vertex_", "source")])
def test_columns_may_be_called_like_that_of_the_vertices(names: tuple[str, ...]) -> None:
    given = {name: {2: float(place), 1: place + 0.5} for place, name in enumerate(names)}
    found = uploaded(given)
    assert found.columns[1:] == list(names)
    assert found[found.columns[0]].to_list() == ["2", "1"]
    for place, name in enumerate(names):
        assert found[name].to_list() == [place, place + 0.5]
