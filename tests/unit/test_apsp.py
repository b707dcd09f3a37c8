"""The door ``apsp``: light to import, every name there and documented, typed, and its answers right."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import os
import re
import sqlite3
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

import apsp

ROOT = Path(__file__).resolve().parents[2]
ROADS = ROOT / "examples" / "helsinki_drive.csv"
FUNCTIONS = sorted(name for name in apsp.__all__ if inspect.isfunction(getattr(apsp, name)))
#: What a user may write; ``reveal_type`` and a wrong call say that types are there, and are not Any.
USER = """
from pathlib import Path

import apsp

graph, receipt = apsp.read_graph("roads.csv")
options = apsp.Options(memory=2**30, sources=(0, 1))
plan: apsp.Plan = apsp.plan(graph, options)
distances, outcome = apsp.solve(graph, options)
kept = apsp.solve_to_store(graph, Path("roads.zarr"), compression="zstd")
many = apsp.solve_many([graph, graph])
with apsp.open("s3://bucket/roads") as matrix:
    route = apsp.Router(matrix).route(matrix.vertex("a"), 1)
    if route is not None:
        print(route.length, plan.seconds, outcome.summary, kept.plan, many[0].failure, receipt.notes)
print(apsp.verify("roads.zarr").searched, apsp.__version__, apsp.csgraph.shortest_path([[0, 1], [1, 0]]))


class Loud(apsp.Monitor):
    def advance(self, amount: int) -> None:
        print(amount)


def ask(client: apsp.Client) -> float:
    try:
        return client.solve("roads.csv").distance("a", "b")
    except apsp.errors.ServiceError as error:
        print(error.problem.title)
    except (apsp.errors.DoesNotFit, apsp.errors.NotFound) as error:
        print(error.kind, error.details())
    return 0.0


reveal_type(distances)
reveal_type(apsp.open)
apsp.plan("roads.csv")  # wrong on purpose
"""


def alone(program: str, *arguments: str) -> str:
    """What a program prints in a Python of its own."""
    done = subprocess.run([sys.executable, *arguments, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_every_name_is_there_and_listed():
    assert [name for name in apsp.__all__ if getattr(apsp, name, None) is None] == []
    assert dir(apsp) == sorted(apsp.__all__)
    listed = alone("import apsp; print(*dir(apsp))").split()
    assert listed == sorted(apsp.__all__), "before anything was used, too"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="solve_all"):
        _ = apsp.solve_all


@pytest.mark.parametrize("name", ["csgraph", "errors"])
def test_parts_can_be_imported_by_name_too(name):
    alone(f"from apsp.{name} import *; import apsp; assert apsp.{name}.__all__")


def test_errors_are_all_that_apsp_raises():
    import service.client.errors
    import storage.errors

    there = {
        name
        for module in (storage.errors, service.client.errors)
        for name, found in vars(module).items()
        if inspect.isclass(found) and issubclass(found, Exception)
    }
    assert set(apsp.errors.__all__) == there
    assert all(issubclass(getattr(apsp.errors, name), apsp.errors.ApspError) for name in apsp.errors.__all__)


def test_importing_is_light():
    loaded = alone("import apsp, sys; print(*sys.modules)").split()
    assert {name.split(".")[0] for name in loaded} & {"numpy", "scipy", "engine", "service", "storage"} == set()
    lines = [line for _ in range(5) for line in alone("import apsp", "-X", "importtime").splitlines()]
    spent = [int(line.split("|")[1]) for line in lines if line.endswith(" apsp")]
    assert len(spent) == 5
    assert min(spent) < 50_000, f"{spent} microseconds"  # the least, for other programs take time, too


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_take_give_and_raise(name):
    function = getattr(apsp, name)
    said = inspect.getdoc(function) or ""
    sections = re.split(r"^(Args|Returns|Raises):$", said, flags=re.MULTILINE)
    assert sections[1::2] == ["Args", "Returns", "Raises"], said
    told = re.findall(r"^    ([\w, ]+?): ", sections[2], re.MULTILINE)
    assert {word for words in told for word in words.split(", ")} == set(inspect.signature(function).parameters)


def test_a_misspelt_keyword_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("from,to,w\n1,2,3\n2,1,3\n")
    graph, _ = apsp.read_graph(tmp_path / "a.csv")
    apsp.prepare(graph, tmp_path / "p")
    calls = {
        "read_graph": (tmp_path / "a.csv",),
        "build_graph": ([0], [1], [2]),
        "reweight": (tmp_path / "p", tmp_path / "a.csv"),
        "measure": (graph,),
    }
    open_ended = {name for name in FUNCTIONS if getattr(apsp, name).__code__.co_flags & inspect.CO_VARKEYWORDS}
    assert open_ended == calls.keys(), "Python itself refuses it in all others"
    for name, given in calls.items():
        with pytest.raises(TypeError, match="withn"):
            getattr(apsp, name)(*given, withn=1)
    with apsp.open(tmp_path / "p") as matrix, pytest.raises(TypeError, match="withn"):
        apsp.measure(matrix, withn=1)


def test_classes_have_docstrings():
    classes = [name for name in apsp.__all__ if inspect.isclass(getattr(apsp, name))]
    assert [name for name in classes if not inspect.getdoc(getattr(apsp, name))] == []
    assert all("Args:" in (inspect.getdoc(getattr(apsp, name)) or "") for name in ("Client", "AsyncClient"))


@pytest.mark.parametrize("module", [apsp, apsp.csgraph], ids=lambda module: module.__name__)
def test_the_examples_of_docstrings_run(module, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def expected(graph: apsp.Graph) -> np.ndarray:
    arcs = csr_array((graph.weights.astype(float), graph.heads, graph.indptr), shape=(graph.n, graph.n))
    return shortest_path(arcs)


def test_a_walk_through_gives_scipys_distances(tmp_path):
    graph, receipt = apsp.read_graph(ROADS)
    assert receipt.entries > 0
    right, options, store = expected(graph), apsp.Options(dtype="float64"), tmp_path / "roads.zarr"
    plan = apsp.plan(graph, options, out=store)
    assert plan.shape == (graph.n, graph.n)
    distances, outcome = apsp.solve(graph, options)
    assert distances.dtype == np.float64
    np.testing.assert_allclose(distances, right, rtol=1e-12)
    kept = apsp.solve_to_store(graph, str(store), options)
    assert kept.summary["diameter"] == pytest.approx(outcome.summary["diameter"])
    assert apsp.verify(store).searched > 0
    with apsp.open(store) as matrix:
        np.testing.assert_allclose(matrix.rows(matrix.sources), right, rtol=1e-12)
        u, v = matrix.vertex(1483296617), matrix.vertex(760466577)
        assert apsp.Router(matrix).route(u, v).length == pytest.approx(right[u, v])
    arcs = csr_array((graph.weights, graph.heads, graph.indptr), shape=(graph.n, graph.n))
    np.testing.assert_allclose(apsp.csgraph.shortest_path(arcs), right, rtol=1e-12)


@pytest.mark.parametrize(("weights", "kind"), [([3, 4, 5], "float64"), ([0.5, 1.25, 7.0], "float32")])
def test_an_array_is_of_floats_and_what_is_not_reached_is_infinite(weights, kind):
    graph, _ = apsp.build_graph([0, 1, 3], [1, 2, 0], weights, directed=True)
    distances, outcome = apsp.solve(graph)
    assert distances.dtype == kind
    assert np.isinf(distances).any(), "or this tests nothing"
    np.testing.assert_array_equal(distances, expected(graph))
    assert outcome.plan.shape == distances.shape


def test_an_array_holds_what_is_asked_for_in_its_order():
    graph, _ = apsp.read_graph(ROADS)
    sources, targets = (700, 3, 12), (5, 900)
    asked = apsp.Options(sources=sources, targets=targets, cutoff=2000.0)
    right = expected(graph)[np.ix_(sources, targets)]
    right[right > 2000.0] = np.inf
    found, _ = apsp.solve(graph, asked)
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_an_array_that_has_no_room_is_refused_before_any_work():
    graph, _ = apsp.read_graph(ROADS)
    with pytest.raises(apsp.errors.DoesNotFit, match="solve_to_store") as refused:
        apsp.solve(graph, apsp.Options(memory=graph.n**2 * 8))
    assert refused.value.details() == {"resource": "memory", "needed": graph.n**2 * 8, "available": graph.n**2 * 8}
    with pytest.raises(apsp.errors.DoesNotFit):
        apsp.solve(graph, apsp.Options(memory=graph.n**2 * 8 + 1)), "the work needs room beside it"


def test_an_array_is_not_for_workers():
    graph, _ = apsp.build_graph([0], [1], [1], directed=True)
    with pytest.raises(apsp.errors.InvalidRequest, match="solve_to_store"):
        apsp.solve(graph, apsp.Options(executor="dask", scheduler="tcp://127.0.0.1:1"))


def test_a_monitor_stops_a_solve():
    class Impatient(apsp.Monitor):
        def cancelled(self) -> bool:
            return True

    graph, _ = apsp.read_graph(ROADS)
    with pytest.raises(apsp.errors.Cancelled):
        apsp.solve(graph, monitor=Impatient())


def test_many_graphs_come_in_their_order_and_a_wrong_one_alone_fails(tmp_path):
    good, _ = apsp.build_graph([0, 1, 2], [1, 2, 0], [3, 4, 5], directed=True)
    longer, _ = apsp.build_graph([0, 1, 2, 3], [1, 2, 3, 0], [1, 1, 1, 2], directed=True)
    negative, _ = apsp.build_graph([0, 1], [1, 0], [1, -2], directed=True)
    places = [tmp_path / f"{k}.zarr" for k in range(3)]
    found = apsp.solve_many([good, negative, longer], out=places)
    assert [result.index for result in found] == [0, 1, 2]
    assert [result.failure and result.failure.kind for result in found] == [None, "negative-cycle", None]
    assert [place.exists() for place in places] == [True, False, True]
    for place, graph in ((places[0], good), (places[2], longer)):
        with apsp.open(place) as matrix:
            np.testing.assert_array_equal(matrix.rows(matrix.sources), expected(graph))
    summaries = apsp.solve_many([good, longer])
    assert [result.summary["diameter"] for result in summaries] == [9, 4]
    assert apsp.solve_many([]) == []


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (["a.zarr"], "found 1 places"),
        ("stores", "found the one place stores"),
        (["a.zarr", "./a.zarr"], "twice"),
        (["a.zarr", "s3://bucket/b"], "s3://bucket/b is no folder"),
    ],
)
def test_places_that_do_not_go_with_many_graphs_are_refused(out, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph, _ = apsp.build_graph([0, 1], [1, 0], [3, 4], directed=True)
    with pytest.raises(apsp.errors.InvalidRequest, match=words):
        apsp.solve_many([graph, graph], out=out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "asked",
    [{"sources": (0,)}, {"targets": (0,)}, {"cutoff": 3.0}, {"executor": "dask"}, {"device": "abacus"}],
    ids=lambda asked: next(iter(asked)),
)
def test_what_many_graphs_cannot_be_asked_is_refused_and_not_left_out(asked):
    graph, _ = apsp.build_graph([0, 1], [1, 0], [3, 4], directed=True)
    with pytest.raises(apsp.errors.InvalidRequest) as refused:
        apsp.solve_many([graph, graph], apsp.Options(**asked))
    assert refused.value.field == next(iter(asked))


def test_a_place_to_work_in_is_for_addresses(tmp_path):
    graph, _ = apsp.build_graph([0, 1], [1, 0], [3, 4], directed=True)
    with pytest.raises(apsp.errors.InvalidRequest):
        apsp.solve_to_store(graph, tmp_path / "a.zarr", work=tmp_path)


def test_an_address_is_no_folder_to_plan_for():
    graph, _ = apsp.build_graph([0, 1], [1, 0], [3, 4], directed=True)
    with pytest.raises(apsp.errors.InvalidRequest, match="s3://bucket/a"):
        apsp.plan(graph, out="s3://bucket/a")


def checked(words: list[str], file: Path, **where: object) -> list[str]:
    """What mypy says of a user's file, its last line left out."""
    file.write_text(USER)
    done = subprocess.run([*words, "--strict", str(file)], capture_output=True, text=True, check=False, **where)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line.startswith(file.name)]


def assert_typed(said: list[str]) -> None:
    wrong = USER.splitlines().index('apsp.plan("roads.csv")  # wrong on purpose') + 1
    text = "\n".join(said)
    assert [line for line in said if "error:" in line and f":{wrong}: " not in line] == []
    assert f':{wrong}: error: Argument 1 to "plan" has incompatible type "str"; expected "Graph"' in text
    assert 'Revealed type is "numpy.ndarray' in text
    assert "storage.matrix.reader.Matrix" in text


def test_a_users_program_type_checks(tmp_path):
    """With the configuration of this repository, whose cache is warm after a check."""
    config = str(ROOT / "pyproject.toml")
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    words = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", str(ROOT / ".mypy_cache")]
    assert_typed(checked(words, tmp_path / "user.py", cwd=tmp_path, env=environment))


def known_types(folder: Path) -> Path:
    """A copy of the cache of mypy; a check that runs meanwhile may write to the original."""
    for path in (ROOT / ".mypy_cache").glob("*/*.db"):
        copy = folder / path.relative_to(ROOT / ".mypy_cache")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path)) as one, contextlib.closing(sqlite3.connect(copy)) as other:
            one.backup(other)
    return folder


@pytest.mark.slow
def test_a_users_program_type_checks_with_what_is_installed(tmp_path):
    source, site = tmp_path / "source", tmp_path / "venv" / "lib"
    source.mkdir()
    for name in ("apsp", "engine", "service", "storage", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*words, "-w", str(tmp_path), str(source)], check=True)
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    (site / "others.pth").write_text(str(Path(np.__file__).parents[1]))
    python = tmp_path / "venv" / "bin" / "python"
    home = subprocess.run(
        [python, "-c", "import apsp.errors; print(apsp.__file__, apsp.errors.__file__, *apsp.__all__)"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert home.startswith(f"{site}/apsp/__init__.py {site}/apsp/errors.py Assignment"), home
    # what a check of this repository knows of other packages is kept where mypy has the same options
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(known_types(tmp_path / "cache"))]
    words = [sys.executable, "-m", "mypy", *options, "--python-executable", str(python)]
    assert_typed(checked(words, tmp_path / "user.py", cwd=tmp_path))


def shown() -> dict[str, str]:
    """What users are shown: documents, notebooks, programs and pages."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md"), *ROOT.glob("examples/*.*")]
    files += ROOT.glob("service/dashboard/templates/*.html")
    texts = (".md", ".py", ".ipynb", ".html")
    return {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files if file.suffix in texts}


def test_users_are_shown_no_other_import():
    behind = re.compile(r"""(?:^|[">])\s*(?:from|import) (?:engine|service|storage)\b.*""", re.MULTILINE)
    texts = shown()
    assert {"README.md", "docs/python.md", "examples/city.ipynb", "service/dashboard/templates/result.html"} <= {*texts}
    assert {name: behind.findall(text) for name, text in texts.items() if behind.search(text)} == {}
    assert sum("import apsp" in text for text in texts.values()) >= 5
