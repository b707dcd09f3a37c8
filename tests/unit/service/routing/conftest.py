"""The city of the routing protocols, solved and prepared, and a client of its application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from engine.api.prepared import prepare
from engine.api.prepared_matrix import open_result
from engine.api.solve import solve_to_store
from engine.model.problem import Options
from service.routing.app import create_app
from service.routing.network import RoutingNetwork
from tests.unit.service.routing.support import city


@pytest.fixture(scope="module", params=["solved", "prepared"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("routing") / "city.zarr"
    if request.param == "solved":
        solve_to_store(city(), Options(device="cpu"), path)
    else:
        prepare(city(), path, Options(device="cpu"))
    return path


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[TestClient]:
    with open_result(store) as matrix:
        yield TestClient(create_app(RoutingNetwork(matrix, unit=None, speed=None, most=1000)))
