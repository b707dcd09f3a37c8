"""Numbers that are not 0, but so small that float64 takes them for 0, are refused; a length of 0 would be another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from storage.errors import InvalidGraph
from storage.graph.new_weights import read_weights
from storage.readers import fields, read_graph
from storage.readers.tables import csv_columns, table

SMALL = f"0.{'0' * 400}1"


@pytest.mark.parametrize(
    "text", ["1e-400", "-1E-0324", "+.5e-330", "000.00100e-9999", SMALL, f"0.{'0' * 250}1e-99", "1d-400"]
)
def test_a_number_that_float64_takes_for_0_is_refused(text: str) -> None:
    with pytest.raises(InvalidGraph, match=r"line 7: weight .* is so small that float64 would take it for 0") as caught:
        fields.weight(text, 7)
    assert caught.value.field == "weight"


@pytest.mark.parametrize("text", ["0", "-0.0", "0e-400", ".000E-999", "+0.", f"0.{'0' * 400}", "0d0"])
def test_zeros_are_read(text: str) -> None:
    assert fields.weight(text, 7) == 0


@pytest.mark.parametrize("text", ["5e-324", "1e-320", "2.4703282292062328e-324"])
def test_numbers_that_float64_holds_are_read(text: str) -> None:
    assert 0 < fields.weight(text, 7) < 1e-319


def edges(weights: list[str]) -> str:
    return "".join(f"{i} {i + 1} {weight}\n" for i, weight in enumerate(weights, 1))


def names(weights: list[str]) -> str:
    return "from,to,km\n" + "".join(f"v{i},v{i + 1},{weight}\n" for i, weight in enumerate(weights, 1))


def commas(weights: list[str]) -> str:
    return "von;nach;km\n" + "".join(f"v{i};v{i + 1};{w.replace('.', ',')}\n" for i, w in enumerate(weights, 1))


def market(weights: list[str]) -> str:
    n = len(weights) + 1
    return f"%%MatrixMarket matrix coordinate real general\n{n} {n} {len(weights)}\n" + edges(weights)


def matrix(weights: list[str]) -> str:
    """The weights stand beside the diagonal, where an entry of 0 is no arc."""
    n = len(weights) + 1
    rows = [["1.5"] * n for _ in range(n)]
    for i in range(n):
        rows[i][i] = "0"
    for i, weight in enumerate(weights):
        rows[i][i + 1] = weight
    return "".join(" ".join(row) + "\n" for row in rows)


def tsplib(weights: list[str]) -> str:
    head = (
        "TYPE: ATSP",
        f"DIMENSION: {len(weights) + 1}",
        "EDGE_WEIGHT_TYPE: EXPLICIT",
        "EDGE_WEIGHT_FORMAT: FULL_MATRIX",
    )
    return "\n".join([*head, "EDGE_WEIGHT_SECTION", matrix(weights)]) + "EOF\n"


@pytest.mark.parametrize("large", [False, True], ids=["by lines", "by columns"])
@pytest.mark.parametrize(
    ("write", "above"), [(edges, 0), (names, 1), (commas, 1), (market, 2), (matrix, 0), (tsplib, 5)]
)
@pytest.mark.parametrize("small", ["1e-400", SMALL])
def test_every_reader_of_numbers_refuses_it_with_its_line(
    small: str,
    write: Callable[[list[str]], str],
    above: int,
    large: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "FEW_BYTES", 0 if large else 1 << 20)
    path = tmp_path / "graph.txt"
    path.write_text(write(["2.5", "0.0", "1e-30", "3.25", "7e-5", "4.75"]))
    graph, _ = read_graph(path)
    assert graph.n == 7
    path.write_text(write(["2.5", "0.0", "1e-30", "3.25", small, "4.75"]))
    with pytest.raises(InvalidGraph, match="is so small that float64 would take it for 0") as caught:
        read_graph(path)
    assert (caught.value.line, caught.value.field) == (above + 5, "weight")


def node_link(weights: list[str]) -> str:
    nodes = ", ".join(f'{{"id": {i}}}' for i in range(1, len(weights) + 2))
    links = ",\n".join(
        f'{{"source": {i}, "target": {i + 1}, "weight": {weight.removeprefix("+")}}}'
        for i, weight in enumerate(weights, 1)
    )
    return f'{{"directed": true, "multigraph": false, "nodes": [{nodes}], "links": [\n{links}]}}'


def cytoscape(weights: list[str]) -> str:
    edges = ",\n".join(
        f'{{"data": {{"source": "{i}", "target": "{i + 1}", "weight": "{weight}"}}}}'
        for i, weight in enumerate(weights, 1)
    )
    nodes = ", ".join(f'{{"data": {{"id": "{i}"}}}}' for i in range(1, len(weights) + 2))
    return f'{{"directed": true, "elements": {{"nodes": [{nodes}], "edges": [\n{edges}]}}}}'


def graphml(weights: list[str]) -> str:
    head = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" attr.name="weight"/>'
    nodes = "".join(f'<node id="{i}"/>' for i in range(1, len(weights) + 2))
    edges = "".join(
        f'<edge source="{i}" target="{i + 1}"><data key="w">{weight}</data></edge>\n'
        for i, weight in enumerate(weights, 1)
    )
    return f'{head}<graph edgedefault="directed">{nodes}\n{edges}</graph></graphml>'


def gexf(weights: list[str]) -> str:
    nodes = "".join(f'<node id="{i}"/>' for i in range(1, len(weights) + 2))
    edges = "".join(
        f'<edge id="{i}" source="{i}" target="{i + 1}" weight="{weight}"/>\n' for i, weight in enumerate(weights, 1)
    )
    head = '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph defaultedgetype="directed">'
    return f"{head}<nodes>{nodes}</nodes><edges>\n{edges}</edges></graph></gexf>"


def gml(weights: list[str]) -> str:
    nodes = " ".join(f"node [ id {i} ]" for i in range(1, len(weights) + 2))
    edges = "".join(f"edge [ source {i} target {i + 1} weight {weight} ]\n" for i, weight in enumerate(weights, 1))
    return f"graph [ directed 1 {nodes}\n{edges}]\n"


def pajek(weights: list[str]) -> str:
    names = "".join(f'{i} "v{i}"\n' for i in range(1, len(weights) + 2))
    return f"*Vertices {len(weights) + 1}\n{names}*Arcs\n{edges(weights)}"


@pytest.mark.parametrize(
    ("name", "write", "above"),
    [
        ("g.json", node_link, 1), ("g.cyjs", cytoscape, 1), ("g.graphml", graphml, 1), ("g.gexf", gexf, 1),
        ("g.gml", gml, 1), ("g.net", pajek, 9),
    ],
)  # fmt: skip
def test_formats_with_attributes_refuse_it_with_its_line(
    name: str, write: Callable[[list[str]], str], above: int, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(write(["2.5", "0e-400", "1e-30", "3.25", "7e-5", "-0.0"]))
    assert read_graph(path)[0].arcs == 6
    path.write_text(write(["2.5", "0e-400", "1e-30", "3.25", "1e-400", "4.75"]))
    with pytest.raises(InvalidGraph, match="weight '1e-400' is so small that float64 would take it for 0") as caught:
        read_graph(path)
    assert (caught.value.line, caught.value.field) == (above + 5, "weight")


def test_new_weights_and_quantities_refuse_it(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text(names(["2.5", "1e-400"]))
    with pytest.raises(InvalidGraph, match="line 3: weight '1e-400' is so small"):
        read_weights(path, {}, directed=True)
    path.write_text("from,to,km,toll\na,b,1,0.0\nb,c,2,1e-400\n")
    with pytest.raises(InvalidGraph, match="'1e-400' is so small") as caught:
        read_graph(path, also=["toll"])
    assert caught.value.line == 3


def test_columns_are_read_again_only_where_a_number_may_have_vanished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.ArcTable, "_parse_lines", lambda *_: pytest.fail("read line by line"))
    path = tmp_path / "graph.txt"
    for weights in (
        ["2.5", "1e-200"],
        ["0.0", "1e-99"],
        ["0", f"1.{'0' * 99}5"],
        ["0.000e+000", "5.000e-001"],
        ["-0.0", "1E-9"],
    ):
        path.write_text(edges(weights))
        assert read_graph(path)[0].arcs == 2
    path.write_text("from,to,km\nVille-Marie,e-1,0.0\ne-1,e-20,2.5\ne-20,Che-10A,-0.0")
    assert read_graph(path)[0].n == 4


@pytest.mark.parametrize("spaces", range(4))
def test_a_number_at_the_end_of_the_text_is_looked_at(spaces: int) -> None:
    values = np.array([0.0, 1.0])
    for text, expected in (("e-400", True), ("e-0400", True), ("e-005", False), ("e-40", False), ("-0", False)):
        assert csv_columns.may_have_vanished(values, f"1.0 0{text}{' ' * spaces}".encode()) == expected
        assert not csv_columns.may_have_vanished(values + 1, text.encode())
