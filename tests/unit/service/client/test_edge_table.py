"""Edges with further columns as a Parquet table: the service is told which column is what."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from service.client.edge_table import column_query, end_names, write_table
from service.client.graphs import prepared
from service.options import UploadOptions
from storage.errors import InvalidRequest
from storage.readers import read_graph

EDGES = pl.DataFrame({"from": [1, 2], "to": [2, 3], "km": [1.5, 2.0], "source": [3, 4], "tail": [0.5, 0.25]})


def test_the_ends_are_called_like_no_other_column():
    assert end_names(None) == end_names("km") == ("source", "target")
    assert end_names("Source") == end_names("km", ["target"]) == ("tail", "head")
    assert end_names("source", ["HEAD"]) == ("tail 0", "head 0")
    assert end_names("source", ["tail", "tail 0", "head 1"]) == ("tail 2", "head 2")


def test_without_weights_a_further_column_does_not_become_them():
    assert column_query(None, None) == {"format": "parquet"}
    assert column_query(None, None, ["km"]) == {
        "format": "parquet", "source": "source", "target": "target", "unweighted": True,
    }  # fmt: skip
    assert column_query("km", "1 / km", ["toll"])["length_of"] == "1 / km"


def test_a_column_that_is_the_weight_too_is_written_once(tmp_path: Path):
    write_table(tmp_path / "t", [1], [2], [3.5], name="km", further={"km": [9], "toll": [True]})
    found = pl.read_parquet(tmp_path / "t")
    assert found.to_dict(as_series=False) == {"source": [1], "target": [2], "km": [3.5], "toll": [1]}
    for wrong in ([None], ["x"], [object()]):
        with pytest.raises(InvalidRequest, match=r"also toll: .*value") as refused:
            write_table(tmp_path / "t", [1], [2], further={"toll": wrong})
        assert refused.value.field == "also"


@pytest.mark.parametrize("graph", [EDGES, EDGES.lazy(), EDGES.to_pandas()], ids=["polars", "lazy", "pandas"])
@pytest.mark.parametrize("unweighted", [False, True])
def test_what_is_sent_is_read_as_it_was_meant(graph: object, unweighted: bool):
    with prepared(graph, UploadOptions(also=["source", "km", "tail"], unweighted=unweighted)) as upload:
        query = {name: value for name, value in upload.query.items() if value is not None and name != "name"}
        found, _ = read_graph(upload.file, **query)
    assert found.weights.tolist() == ([1, 1] if unweighted else [1.5, 2.0])
    assert {name: values.tolist() for name, values in found.quantities.items()} == {
        "source": [3, 4], "km": [1.5, 2.0], "tail": [0.5, 0.25],
    }  # fmt: skip


def test_names_with_commas_are_quoted(tmp_path: Path):
    (tmp_path / "g.csv").write_text("a,b\n1,2\n")
    with prepared(tmp_path / "g.csv", UploadOptions(also=['x,"y"', "z w"])) as upload:
        assert upload.query["also"] == ['"x,""y"""', "z w"]
    with prepared(tmp_path / "g.csv", UploadOptions(also=None)) as upload:
        assert "also" not in upload.query
