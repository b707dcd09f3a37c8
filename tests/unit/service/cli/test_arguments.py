"""Every interface has the same options for reading a file, and reports what the reader selected."""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from fastapi.testclient import TestClient

from service.api.schemas.graphs import UploadQuery
from service.cli import main
from service.cli import prepared as cli_prepared
from service.cli import remote as cli_remote
from service.cli.commands import remote
from service.client import AsyncClient, Client
from service.client.graphs import prepared
from service.dashboard.render import environment
from service.options import UploadOptions
from service.state import Service
from storage.errors import InvalidRequest
from storage.graph.graph_store import GraphStore
from storage.options import ReadingOptions, declared
from storage.readers import FORMATS, read_graph
from storage.readers.named import NO_DIRECTION
from tests.property.test_openapi import here

ROOT = Path(__file__).resolve().parents[4]
OPTIONS = set(declared(ReadingOptions))
TEXTS = "here,there,score,km\n1,2,0.75,9\n2,3,0.25,8\n"


@pytest.fixture
def service(client: TestClient) -> Service:
    found: Service = client.app.state.service  # type: ignore[attr-defined]
    found.planner.run = found.worker.run = here  # type: ignore[method-assign]
    return found


# ---- every option is everywhere --------------------------------------------------------------------------------------


def test_the_reader_has_these_options() -> None:
    assert {"format", "directed", "weight", "unweighted", "source", "target", "labels", "length_of"} < OPTIONS
    assert set(inspect.signature(read_graph).parameters) == {"path", "limits", "also", "nodes", *OPTIONS}


@pytest.mark.parametrize(
    "command",
    [
        main.solve,
        main.solve_many,
        cli_prepared.prepare,
        main.plan,
        main.inspect,
        cli_remote.submit,
    ],
)
def test_every_command_that_reads_a_graph_has_every_option(command: Any) -> None:
    assert set(inspect.signature(command).parameters) >= OPTIONS


def test_new_weights_are_read_with_every_option_but_those_of_a_graph() -> None:
    found = set(inspect.signature(cli_prepared.reweight).parameters)
    assert {name for name in OPTIONS if name not in found} == {"unweighted", "unit", "coordinates"}


def test_no_other_command_takes_a_graph_file() -> None:
    for command in main.app.registered_commands:
        parameters = set(inspect.signature(command.callback).parameters)
        if command.callback is cli_prepared.reweight:
            continue
        assert parameters >= OPTIONS or not parameters & {"graph", "graphs", "format"}, command.callback


def test_the_upload_has_every_option() -> None:
    assert set(UploadQuery.model_fields) - {"name", "filename"} == set(declared(UploadOptions)) == OPTIONS | {"also"}
    assert set(UploadQuery().reading()) == OPTIONS | {"also"}


@pytest.mark.parametrize("method", [Client.solve, Client.submit, AsyncClient.solve, AsyncClient.submit])
def test_the_client_has_every_option(method: Any) -> None:
    assert set(inspect.signature(method).parameters) >= OPTIONS


def test_the_client_sends_every_option_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(TEXTS)
    said: dict[str, Any] = {
        name: True if name in ("directed", "unweighted", "centroids_through") else name for name in OPTIONS
    }
    with prepared(tmp_path / "g.csv", ReadingOptions(**said)) as upload:
        assert {name: value for name, value in upload.query.items() if name in OPTIONS} == said


def test_submit_passes_every_option_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}
    monkeypatch.setattr(remote, "submit", lambda _graph, options, _at, **_more: passed.update(options))
    texts = ("format", "weight", "source", "target", "labels", "length_of", "unit", "mode")
    words = {"source": "from", "target": "to", "length_of": "length-of"}
    (tmp_path / "g.csv").write_text(TEXTS)
    said = [word for name in texts for word in (f"--{words.get(name, name)}", name)]
    run(
        "submit",
        tmp_path / "g.csv",
        *said,
        "--undirected",
        "--unweighted",
        "--centroids-through",
        "--coordinates",
        "plane",
        "--parallel",
        "greatest",
    )
    expected: dict[str, Any] = {name: name for name in texts}
    expected |= {"directed": False, "unweighted": True, "centroids_through": True, "coordinates": "plane"}
    expected["parallel"] = "greatest"
    assert {name: passed[name] for name in OPTIONS} == expected


def test_the_page_asks_for_every_option() -> None:
    form = (ROOT / "service" / "dashboard" / "templates" / "drop.html").read_text()
    assert set(re.findall(r'name="(\w+)"', form)) - {"file"} == OPTIONS | {"also"}
    page = environment().get_template("drop.html").render()
    assert set(re.findall(r"<option>([\w-]+)</option>", page)) == set(FORMATS)


def test_the_documents_name_every_option() -> None:
    pages = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("formats", "api", "client")}
    flags = {"source": "--from", "target": "--to", "directed": "--directed"}
    for name in OPTIONS:
        assert f"`{flags.get(name, '--' + name.replace('_', '-'))}" in pages["formats"], name
        assert f"`{name}`" in pages["api"], name
        assert re.search(rf"`{name}[`=]", pages["client"]), name


# ---- and works through every door ------------------------------------------------------------------------------------


def run(*words: object) -> tuple[str, str]:
    """What a command prints on standard output and on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main.app([str(word) for word in words], standalone_mode=False)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text(TEXTS.replace("km", "lanes"))
    return path


SAID = ["--from", "there", "--to", "here", "--length-of", "1 - score"]
NOTE = "not read: column lanes"
NOTES = [NOTE, NO_DIRECTION]


def test_inspect(scores: Path) -> None:
    facts = json.loads(run("inspect", scores, *SAID, "--json")[0])
    assert (facts["weights"]["column"], facts["weights"]["length_of"]) == ("score", "1 - score")
    assert (facts["weights"]["smallest"], facts["weights"]["largest"]) == (0.25, 0.75)
    assert facts["notes"] == NOTES
    text = run("inspect", scores, *SAID)[0]
    assert NOTE in text
    assert "1 - score" in text
    with pytest.raises(InvalidRequest, match="--length-of '1 - score'"):
        run("inspect", scores, "--from", "here", "--to", "there")


def test_plan(scores: Path) -> None:
    out, err = run("plan", scores, *SAID, "--json")
    assert json.loads(out)["notes"] == NOTES
    assert f"note: {NOTE}" in err


def test_solve_and_solve_many(scores: Path, tmp_path: Path) -> None:
    out, err = run("solve", scores, *SAID, "--out", tmp_path / "m.zarr", "--json")
    assert json.loads(out)["graph"]["notes"] == NOTES
    assert f"note: {NOTE}" in err
    assert json.loads(run("query", tmp_path / "m.zarr", "distance", "3", "1", "--json")[0])["distance"] == 1
    _, err = run("solve-many", scores, *SAID, "--summary", tmp_path / "all.csv")
    assert f"{scores}: {NOTE}" in err
    head, row = csv.reader((tmp_path / "all.csv").read_text().splitlines())
    assert dict(zip(head, row, strict=True))["notes"] == "; ".join(NOTES)


def test_upload_estimate_and_pages(client: TestClient, service: Service) -> None:
    body = TEXTS.replace("km", "lanes").encode()
    refused = client.post("/v1/graphs", params={"source": "here", "target": "there"}, content=body)
    assert refused.status_code == 422
    assert "similarity" in refused.json()["detail"]
    query = {"source": "there", "target": "here", "length_of": "1 - score"}
    found = client.post("/v1/graphs", params=query, content=body).json()
    assert found["receipt"]["length_of"] == "1 - score"
    assert found["receipt"]["notes"] == NOTES
    assert client.post("/v1/estimates", json={"graph": found["id"]}).json()["notes"] == NOTES
    job = client.post("/v1/jobs", json={"graph": found["id"]}).json()
    for page in (f"/graphs/{found['id']}", f"/jobs/{job['id']}"):
        text = client.get(page).text
        assert NOTE in text, page
    assert "1 - score" in client.get(f"/graphs/{found['id']}").text
    turned = client.post("/v1/graphs", params={**query, "source": "here", "target": "there"}, content=body).json()
    assert turned["id"] != found["id"]
    malformed = client.post("/v1/graphs", params={**query, "length_of": "1 - - * score"}, content=body)
    assert (malformed.status_code, malformed.json()["details"]["field"]) == (422, "length_of")
    assert "position 7" in malformed.json()["detail"]


def test_centroids_over_http(client: TestClient, service: Service) -> None:
    links = [(3, 1, 1), (1, 4, 1), (3, 5, 10), (5, 4, 10), (4, 3, 7)]
    head = "<NUMBER OF NODES> 5\n<FIRST THRU NODE> 3\n<NUMBER OF LINKS> 5\n<END OF METADATA>\n"
    rows = "~\tinit_node\tterm_node\tlength\t;\n" + "".join(f" \t{u}\t{v}\t{w}\t;\n" for u, v, w in links)
    closed = client.post("/v1/graphs", content=(head + rows).encode()).json()
    assert closed["facts"]["terminals"] == 2
    assert "centroids 1 .. 2" in closed["receipt"]["notes"][0]
    through = client.post("/v1/graphs?centroids_through=true", content=(head + rows).encode()).json()
    assert through["facts"]["terminals"] == 0
    assert through["id"] != closed["id"]


# ---- NetworkX graphs follow the rule of tables -----------------------------------------------------------------------


def understood(graph: Any, **how: Any) -> tuple[Any, Any]:
    with prepared(graph, ReadingOptions(**how)) as upload:
        query = {name: value for name, value in upload.query.items() if name in OPTIONS and value is not None}
        return read_graph(upload.file, **query)


def roads(**attributes: Any) -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph()
    graph.add_edge(1, 2, osmid=7, lanes="2", **attributes)
    graph.add_edge(2, 3, osmid=8, lanes="1", **attributes)
    return graph


@pytest.mark.parametrize("value", [12.5, "12.5"])
def test_a_road_network_is_measured_by_its_length_and_not_counted(value: object) -> None:
    read, receipt = understood(roads(length=value, travel_time=3.0))
    assert read.weights.tolist() == [12.5, 12.5]
    assert receipt.weight_column == "length"
    read, receipt = understood(roads(travel_time=3.0))
    assert (read.weights.tolist(), receipt.weight_column) == ([3, 3], "travel_time")


def test_weight_goes_first_and_what_lacks_it_counts_one_as_in_networkx() -> None:
    graph = roads(length=5.0)
    graph.add_edge(3, 1, weight=4)
    read, receipt = understood(graph)
    assert (sorted(read.weights.tolist()), receipt.weight_column) == ([1, 1, 4], "weight")


def test_a_length_that_an_edge_lacks_is_refused() -> None:
    graph = roads(length=5.0)
    graph.add_edge(3, 1)
    with pytest.raises(InvalidRequest, match="edge 3 - 1 lacks 'length'"):
        understood(graph)
    assert not understood(graph, unweighted=True)[0].weighted
    assert sorted(understood(graph, weight="length")[0].weights.tolist()) == [1, 5, 5]


def test_similarities_and_formulas_of_a_networkx_graph() -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", score=0.75)
    graph.add_node("alone")
    with pytest.raises(InvalidRequest, match="similarity"):
        understood(graph)
    read, receipt = understood(graph, length_of="1 / score - 1")
    assert read.weights.tolist() == pytest.approx([1 / 3, 1 / 3])
    assert (read.n, receipt.weight_column, receipt.length_of) == (3, "score", "1 / score - 1")


def test_a_graph_without_a_length_counts_hops() -> None:
    assert not understood(roads())[0].weighted


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_formulas_of_tables(kind: str) -> None:
    import pandas as pd
    import polars as pl

    columns = {"a": [1, 2], "b": [2, 3], "source": [0.5, 0.25]}
    table = pd.DataFrame(columns) if kind == "pandas" else pl.DataFrame(columns)
    for formula in ("1 - source", "1 - $3"):
        read, receipt = understood(table, length_of=formula, source="b", target="a")
        assert (read.weights.tolist(), receipt.weight_column) == ([0.5, 0.75], "source")
        assert read.labels[read.heads].tolist() == [1, 2]


def test_an_uploaded_graph_keeps_coordinates_and_unit(client: TestClient, service: Service, tmp_path: Path) -> None:
    graph = nx.MultiDiGraph(crs="epsg:4326")
    graph.add_node(1, x=24.5, y=60.25)
    graph.add_node(2, x=24.75, y=60.5)
    graph.add_edge(1, 2, length=7.0)
    nx.write_graphml(graph, tmp_path / "city.graphml")
    body = (tmp_path / "city.graphml").read_bytes()
    found = client.post("/v1/graphs?unit=m", content=body).json()
    assert found["facts"]["unit"] == "m"
    assert found["facts"]["coordinates"] == {
        "system": "lonlat", "vertices": 2, "from": [24.5, 60.25], "to": [24.75, 60.5], "columns": [],
    }  # fmt: skip
    kept, _ = GraphStore(service.settings.data_dir).load(found["id"])
    assert (kept.unit, kept.coordinates.x.tolist(), kept.coordinates.geographic) == ("m", [24.5, 24.75], True)
    plain = client.post("/v1/graphs", content=body).json()
    assert plain["id"] != found["id"]
    assert client.post("/v1/graphs?nodes=/etc/passwd", content=body).status_code == 422
