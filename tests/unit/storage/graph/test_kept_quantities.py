"""Quantities of a stored graph: they come back, or the folder is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage.errors import StorageFailed
from storage.graph import graph as graph_module
from storage.graph.graph import Graph, Receipt, build_graph, graph_digest, load_graph, save_graph

RECEIPT = Receipt("csv", None, 3, 0, 0, 0, "w")
NAMES = ("source", "toll 2.5%", "größe", "distance")


def skims(**further: object) -> Graph:
    values = ([3, 1, 2], [0.5, 0.25, 4.0], [2**40, 1, 0], [0, 0, 0])
    graph, _ = build_graph(
        [0, 1, 2], [1, 2, 0], [1, 2, 4], n=3, directed=True, quantities=dict(zip(NAMES, values, strict=True))
    )
    return replace(graph, **further)


@pytest.mark.parametrize("terminals", [0, 1])
def test_quantities_come_back_in_their_order(tmp_path: Path, terminals: int):
    graph = skims(terminals=terminals, unit="min")
    save_graph(graph, RECEIPT, tmp_path / "g")
    found, receipt = load_graph(tmp_path / "g")
    assert tuple(found.quantities) == NAMES
    for name, values in graph.quantities.items():
        np.testing.assert_array_equal(found.quantities[name], values, strict=True)
    assert (found.terminals, found.unit, receipt) == (terminals, "min", RECEIPT)
    assert graph_digest(found) == graph_digest(graph)
    # no name of a column becomes that of a file
    assert {path.name for path in (tmp_path / "g").glob("quantity*")} == {f"quantity-{k}.npy" for k in range(4)}


def test_only_graphs_with_quantities_have_the_new_form(tmp_path: Path):
    for form, graph in ((1, skims(quantities={})), (2, skims(quantities={}, terminals=1)), (3, skims())):
        save_graph(graph, RECEIPT, tmp_path / str(form))
        about = json.loads((tmp_path / str(form) / "graph.json").read_text())
        assert about["form"] == form
        assert ("quantities" in about) == (form == 3)
    # the digest of the same graph by the version before quantities were kept
    plain, _ = load_graph(tmp_path / "1")
    assert graph_digest(plain) == "sha256:92ff56ff0d9836283b5bd02db8da95ccf7247073fa5626e9dbe3aeabc5b12b96"


def test_a_reader_of_earlier_forms_refuses_instead_of_dropping_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save_graph(skims(), RECEIPT, tmp_path / "g")
    monkeypatch.setattr(graph_module, "FORM", 2)
    with pytest.raises(StorageFailed, match="has form 3; this version reads forms 1 to 2"):
        load_graph(tmp_path / "g")


def test_graphs_without_arcs_keep_the_names(tmp_path: Path):
    graph, _ = build_graph([], [], [], n=2, directed=True, quantities={"toll": []})
    save_graph(graph, RECEIPT, tmp_path / "g")
    found, _ = load_graph(tmp_path / "g")
    assert list(found.quantities) == ["toll"]
    assert found.quantities["toll"].shape == (0,)


@pytest.mark.parametrize("position", [0, 1, -1, -9])
def test_a_changed_byte_is_noticed(tmp_path: Path, position: int):
    save_graph(skims(), RECEIPT, tmp_path / "g")
    path = tmp_path / "g" / "quantity-1.npy"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageFailed, match="damaged"):
        load_graph(tmp_path / "g")


def test_missing_and_shortened_files_are_noticed(tmp_path: Path):
    save_graph(skims(), RECEIPT, tmp_path / "g")
    path = tmp_path / "g" / "quantity-2.npy"
    data = path.read_bytes()
    for wrong in (data[:-1], data[:-8], data + b"\0" * 8, data[:20], b""):
        path.write_bytes(wrong)
        if wrong == data + b"\0" * 8:
            assert load_graph(tmp_path / "g")[0].quantities["größe"].tolist() == [2**40, 1, 0]
            continue
        with pytest.raises(StorageFailed, match="damaged"):
            load_graph(tmp_path / "g")
    path.unlink()
    with pytest.raises(StorageFailed, match="damaged"):
        load_graph(tmp_path / "g")


@pytest.mark.parametrize(
    "changed",
    [
        lambda kept: kept[0].update(name="../../etc"),
        lambda kept: kept[0].update(name=kept[1]["name"]),
        lambda kept: kept[0].update(type="<f8"),
        lambda kept: kept[0].pop("crc32"),
        lambda kept: kept.append(dict(kept[0])),
        lambda kept: kept.reverse(),
    ],
)
def test_a_changed_list_is_noticed(tmp_path: Path, changed):
    save_graph(skims(), RECEIPT, tmp_path / "g")
    path = tmp_path / "g" / "graph.json"
    about = json.loads(path.read_text())
    changed(about["quantities"])
    path.write_text(json.dumps(about))
    with pytest.raises(StorageFailed):
        load_graph(tmp_path / "g")


def test_a_form_without_its_list_is_damaged(tmp_path: Path):
    save_graph(skims(), RECEIPT, tmp_path / "g")
    path = tmp_path / "g" / "graph.json"
    about = json.loads(path.read_text())
    del about["quantities"]
    path.write_text(json.dumps(about))
    with pytest.raises(StorageFailed, match="damaged"):
        load_graph(tmp_path / "g")
