"""What all tests share: the folder of real graphs."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import Postgres, close_postgres, open_postgres
from tests.s3 import S3Server, close_s3, open_s3

pytest_plugins = ["tests.leftovers", "tests.told"]

ROOT = Path(__file__).resolve().parent.parent

# Hypothesis fails a test of which one case takes 0.2 s, or some cases a second to be drawn.  On a busy machine any can.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

#: The folders whose files take longest, which begin first where processes take one file after the other.  Only files
#: that lie in the folder itself are meant: those of ``unit`` build packages and check types.
LONGEST = ("docs", "browser", "integration", "faults", "property", "unit")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage among them, and never look at them again.

    Each process has 14,000 tests and all modules, which is more than any test makes; all of it lives until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, so that no process works on one when the others are done."""
    ranks = {ROOT / "tests" / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.parent, len(ranks)))


@pytest.fixture(scope="module", autouse=True)
def _out_of_sight() -> Iterator[None]:
    """Collections of garbage leave out what earlier files have made and kept, which is millions of objects.

    The syntax trees of all modules, which the tests of the house rules keep, and compiled kernels stay for the rest of
    the process.  A test that collects garbage to see what is left would wait two seconds for it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real graphs with known answers: APSP_DATA, or shared/data beside the repository.

    Tests that ask for it are skipped where it is absent, and fail there if APSP_REQUIRE_DATA is 1, as in CI.
    """
    folder = Path(os.environ.get("APSP_DATA") or ROOT.parent / "shared" / "data")
    if (folder / "REFERENCE.json").is_file():
        return folder
    message = f"the real graphs are not at {folder}; set APSP_DATA to their folder"
    if os.environ.get("APSP_REQUIRE_DATA") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rates that are measured go to no user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _on_a_disk() -> None:
    """Tests write as on a disk, also where their folders are in memory; tests of such folders say so."""
    from storage.files import memory

    vars(memory)["KINDS"] = ()


@pytest.fixture(scope="session", autouse=True)
def _trials_compile() -> None:
    """What a test plans does not depend on which kernels were compiled before it."""
    from engine.execution import trials
    from engine.graph import partition

    vars(trials)["only_ready"] = vars(partition)["only_ready"] = contextlib.nullcontext


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A private PostgreSQL server."""
    server = open_postgres()
    yield server
    close_postgres(server)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A private S3-compatible server; this process and its children are its clients from then on."""
    server = open_s3()
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    yield server
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    close_s3(server)
