"""The API process, wired together.  Importing it loads neither NumPy nor the engine: start-up stays under a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from service import problems
from service.middleware import BodyLimit, RequestId
from service.routes import graphs, health, jobs, results
from service.routes.store import StoreFiles
from service.schemas import Problem
from service.settings import Settings
from service.state import Results, Service
from service.stores import prepare
from service.submission import Plans
from service.waiting import Waiters
from service.work import Worker
from storage.jobs import JobStore
from storage.uploads import Uploads

ROUTERS: Final = (graphs.router, jobs.estimates, jobs.router, results.router, health.router)


def create_app(settings: Settings) -> FastAPI:
    """The application; its reading process starts and stops with its lifespan."""
    prepare(settings)
    store = JobStore(settings.database, timeout=settings.database_timeout)
    service = Service(
        settings=settings,
        jobs=store,
        uploads=Uploads(settings.data_dir),
        worker=Worker(settings.runner_nice // 2, settings.readers),
        planner=Worker(settings.runner_nice // 2, settings.planners),
        results=Results(settings),
        plans=Plans(),
        waiters=Waiters(store),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for pool in (service.worker, service.planner):
            pool.start()
        yield
        for pool in (service.worker, service.planner):
            pool.stop()

    app = FastAPI(
        title="apsp",
        summary="All-pairs shortest paths of graphs larger than memory",
        version=health.software_version(),
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
    )
    app.state.service = service
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(RequestId)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    app.router.routes.append(Mount("/v1/jobs/{job_id}/zarr", StoreFiles(service), name="zarr"))
    _describe_problems(app)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _describe_problems(app: FastAPI) -> None:
    """Put the problem document into the OpenAPI schemas, in place of FastAPI's own form of validation errors."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schemas = schema["components"]["schemas"]
            schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for operations in schema["paths"].values():
                for operation in operations.values():
                    if "422" in operation["responses"]:
                        operation["responses"].update({"422": problems.documented(422)[422]})
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
