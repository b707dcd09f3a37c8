"""The API process, wired together.  Importing it loads neither NumPy nor the engine: start-up stays under a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware

from service.api import problems
from service.api.openapi import describe
from service.auth.keys import Keyring
from service.auth.sessions import Sessions
from service.dashboard import forms, lists, pages
from service.dashboard import tables as table_pages
from service.dashboard.visiting import error_page
from service.http.fast_path import FastPath
from service.http.gate import BodyLimit, Observe, RequestGate
from service.http.waiting import Waiters
from service.jobs.answering import Answering
from service.jobs.events import EventStreams
from service.jobs.folders import prepare
from service.jobs.submission import Plans
from service.pool.process_pool import ProcessPool
from service.routes import graphs, health, jobs, network, results, rows, samples, store, tables
from service.settings import Settings
from service.state import Results, Service
from storage.graph.uploads import Uploads
from storage.jobs.keys import KeyStore
from storage.jobs.store import JobStore
from storage.version import VERSION

_REQUEST_HEADERS: Final = [
    "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range", "Last-Event-ID",
    "Prefer", "Range", "X-Request-ID",
]  # fmt: skip
_RESPONSE_HEADERS: Final = [
    "Accept-Ranges", "Content-Length", "Content-Range", "Distance-Unit", "ETag", "Last-Modified", "Link", "Location",
    "Preference-Applied", "Retry-After", "Value-Unit", "X-Request-ID",
]  # fmt: skip
#: Number of processes that check long request bodies.  One caller may occupy all but one; the last serves the others.
_CHECKERS: Final = 2
ROUTERS: Final = (
    graphs.router,
    jobs.estimates,
    jobs.router,
    results.router,
    rows.router,
    samples.router,
    network.router,
    tables.results,
    tables.uploads,
    store.router,
    health.router,
    pages.router,
    table_pages.router,
    lists.router,
    forms.router,
)


def create_app(settings: Settings, *, observe: Observe | None = None) -> FastAPI:
    """Build the application.  The helper processes start and stop together with it.

    Args:
        settings: the service's settings.
        observe: called after every request with the method, the route pattern, the status and the seconds.
    """
    prepare(settings)
    service = _service(settings)
    identify = Keyring(service.keys).identify if settings.auth else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for pool in (service.worker, service.planner):
            pool.start()
        yield
        service.stop_workers()

    app = FastAPI(
        title="apsp",
        summary="All-pairs shortest paths of graphs larger than memory",
        version=VERSION,
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
        docs_url=None,
        redoc_url=None,
        telemetry={
            "logs": False
        },  # FastAPI sends traces and metrics if a collector is configured; service.logs writes the logs
    )
    app.state.service = service
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(FastPath, service=service, distance=_route("get_distance"), file=_route("get_file"))
    app.add_middleware(
        RequestGate, settings=settings, identify=identify, observe=observe, visit=service.visitors.identify
    )
    _allow_origins(app, settings)
    problems.install(app, error_page)
    for router in ROUTERS:
        app.include_router(router)
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    describe(app, keys=settings.auth)
    return app


def _service(settings: Settings) -> Service:
    """Open the objects that all routes share.  No process is started yet."""
    store = JobStore(settings.database, timeout=settings.database_timeout)
    keys = KeyStore(store.database)
    nice = settings.runner_nice // 2
    answering = Answering(settings)
    service = Service(
        settings=settings,
        jobs=store,
        keys=keys,
        uploads=Uploads(settings.data_dir),
        worker=ProcessPool(nice, settings.readers, setting="read_seconds", memory=settings.task_memory),
        planner=ProcessPool(nice, settings.planners, seconds=settings.plan_seconds, memory=settings.task_memory),
        checker=ProcessPool(nice, _CHECKERS, seconds=settings.plan_seconds, memory=settings.task_memory),
        answering=answering,
        results=Results(settings, answering),
        plans=Plans(),
        waiters=Waiters(store),
        events=EventStreams(settings, store, lambda: service.draining),
        visitors=Sessions(keys),
    )
    return service


def _allow_origins(app: FastAPI, settings: Settings) -> None:
    """Allow cross-origin requests from the origins in the settings, with the headers that Zarr clients need."""
    origins = [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=_REQUEST_HEADERS, expose_headers=_RESPONSE_HEADERS, max_age=86_400,
        )  # fmt: skip


def _route(name: str) -> APIRoute:
    routes = (route for router in ROUTERS for route in router.routes)
    return next(route for route in routes if isinstance(route, APIRoute) and route.name == name)


def _operation_id(route: APIRoute) -> str:
    return route.name
