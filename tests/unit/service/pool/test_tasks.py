"""What the reading process makes of a job request."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from service.api.fault import fault_of
from service.pool.tasks import job_options, plan_job
from service.settings import Settings
from storage.errors import DoesNotFit, InvalidRequest, LimitExceeded
from storage.graph.graph import Graph, build_graph
from storage.graph.graph_store import GraphStore
from tests.unit.service.support import RECEIPT, small_graph


def test_a_process_that_is_ready_has_imported_no_database_and_no_server():
    """Each service starts several of these processes, and such packages take a fifth of the start of each."""
    code = (
        "import sys, service.pool.process, service.pool.tasks as tasks; tasks.warm_up();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "numba" in loaded
    assert not loaded & {"sqlalchemy", "fastapi", "starlette", "uvicorn", "jinja2", "zarr", "polars", "pandas"}


@pytest.mark.parametrize("field", ["sources", "targets"])
def test_vertices_become_indices_and_one_that_is_named_twice_counts_once(field: str):
    options = job_options(small_graph(), {field: [30, "10", "30", 10]}, Settings(data_dir=Path("d")))
    assert getattr(options, field) == (2, 0)
    with pytest.raises(InvalidRequest, match=f"{field}: no vertex '31'") as caught:
        job_options(small_graph(), {field: [31]}, Settings())
    assert caught.value.field == field
    with pytest.raises(LimitExceeded, match=f"5 {field} are named"):
        job_options(small_graph(), {field: [10] * 5}, Settings())


def test_budgets_are_no_larger_than_those_of_the_service():
    settings = Settings(memory=1000, threads=2)
    assert job_options(small_graph(), {"memory": 10, "threads": 8}, settings).memory == 10
    assert job_options(small_graph(), {"memory": 2000, "threads": 8}, settings).memory == 1000
    assert job_options(small_graph(), {"threads": 8}, settings).threads == 2
    assert job_options(small_graph(), {}, Settings()).memory is None


def test_workers_of_a_scheduler_are_asked_for_where_the_service_has_one():
    with pytest.raises(InvalidRequest, match="the service has no scheduler") as caught:
        job_options(small_graph(), {"executor": "dask"}, Settings())
    assert caught.value.field == "executor"
    settings = Settings(scheduler="tcp://node0:8786")
    assert job_options(small_graph(), {"executor": "dask"}, settings).scheduler == "tcp://node0:8786"
    assert job_options(small_graph(), {"executor": "local"}, settings).scheduler is None


def grid(side: int) -> Graph:
    """A lattice: its separators are small, its matrix is not."""
    at = np.arange(side * side).reshape(side, side)
    tails = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    heads = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    return build_graph(tails, heads, 1 + np.arange(len(tails)) % 9, n=side * side, directed=False)[0]


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Graph], tuple[Settings, str]]:
    def store(graph: Graph) -> tuple[Settings, str]:
        settings = Settings(data_dir=tmp_path)
        (tmp_path / "jobs").mkdir(exist_ok=True)
        return settings, GraphStore(tmp_path, None).add(graph, RECEIPT)[0]

    return store


def test_a_prepared_result_is_planned_with_numbers(stored):
    settings, graph = stored(grid(30))
    plan = plan_job(settings, graph, {"result": "prepared", "dtype": "auto"})
    assert (plan["algorithm"], list(plan["shape"])) == ("prepared", [900, 900])
    assert 0 < plan["disk"] < 2**24
    assert plan["memory"] > 0
    assert plan["seconds"] > 0
    assert plan_job(settings, graph, {"result": "matrix"})["algorithm"] != "prepared"


def test_large_separators_are_refused_with_numbers(stored):
    rng = np.random.default_rng(3)
    settings, graph = stored(build_graph(*rng.integers(0, 3000, (2, 20_000)), None, n=3000, directed=True)[0])
    with pytest.raises(DoesNotFit, match="cannot be prepared") as refused:
        plan_job(settings, graph, {"result": "prepared", "memory": 2**26})
    fault = fault_of(refused.value)
    assert fault.code == "does-not-fit"
    assert fault.details["needed"] > fault.details["available"] == 2**26
    assert "prepared" not in fault.details


def test_the_refusal_of_a_matrix_names_preparing_with_its_figures(stored, monkeypatch):
    settings, graph = stored(grid(130))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 2**28))
    with pytest.raises(DoesNotFit) as refused:
        plan_job(settings, graph, {"result": "matrix", "device": "cpu"})
    fault = fault_of(refused.value)
    assert fault.details["resource"] == "disk"
    assert '(a job with "result": "prepared" answers every distance without a matrix)' in fault.message
    figures = fault.details["prepared"]
    assert 0 < figures["disk"] < fault.details["available"]
    assert figures["memory"] > 0
    assert figures["seconds"] > 0
    assert plan_job(settings, graph, {"result": "prepared"})["disk"] == figures["disk"]
    here = settings.model_copy(update={"store_url": "s3://bucket/prefix"})
    assert plan_job(here, graph, {"result": "prepared"})["disk"] == figures["disk"]
