"""Routes about the service itself: version, limits, devices, health."""

from __future__ import annotations

import shutil
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse

from service.api import openapi_page
from service.api.schemas.service import DeviceDocument, Devices, Health, Limit, Limits, Version
from service.api.schemas.wire import LONGEST_NAME, MOST_LISTED
from service.dashboard.render import HEADERS
from service.http.gate import MOST_HEADERS
from service.http.parameters import known_parameters
from service.http.protocol import HEADER_BYTES, HEADER_SECONDS
from service.http.ranges import MAX_RANGES
from service.jobs.events import LONGEST_SECONDS
from service.jobs.retention import KEY_SECONDS
from service.runner.gpus import SHORT
from service.settings import Settings, variable
from service.state import Service, Shared, silent
from storage.errors import StorageFailed
from storage.jobs.store import JobStore
from storage.version import VERSION

router = APIRouter(tags=["service"])
#: refuses unknown parameters of the routes under /v1; programs that check health may add parameters of their own
_KNOWN: Final = (Depends(known_parameters),)

#: free bytes below which the service is not ready; the database needs space to store that a job failed
_DISK_RESERVE: Final = 64 << 20


#: settings other than max_... that limit clients
_LIMITS: Final = (
    "threads", "memory", "min_body_rate", "read_seconds", "min_read_rate", "plan_seconds", "task_memory",
    "answer_seconds", "retain_seconds", "retain_bytes", "tombstone_seconds",
)  # fmt: skip
#: limits that no setting changes
_FIXED: Final[dict[str, tuple[float, str]]] = {
    "header_seconds": (HEADER_SECONDS, "Seconds in which the headers of a request must come."),
    "header_bytes": (HEADER_BYTES, "Bytes of the headers of a request, with its address."),
    "headers": (MOST_HEADERS, "Headers of a request."),
    "ranges": (MAX_RANGES, "Ranges in one request."),
    "page": (200, "Graphs or jobs in one list."),
    "vertex_name": (1000, "Characters of a vertex in an address."),
    "vertex_name_in_body": (LONGEST_NAME, "Characters of a vertex in a body."),
    "listed": (MOST_LISTED, "Vertices or pairs in one list of a body."),
    "idempotency_key_seconds": (KEY_SECONDS, "How long an Idempotency-Key is remembered."),
    "event_stream_seconds": (LONGEST_SECONDS, "After so long a stream of events ends, to be asked for again."),
}


@router.get("/v1/version", response_model=Version, dependencies=_KNOWN)
def get_version() -> Version:
    """Versions."""
    return Version(apsp=VERSION)


@router.get("/v1/limits", response_model=Limits, dependencies=_KNOWN)
def get_limits(service: Shared) -> Limits:
    """Every limit with its setting."""
    set_here = {
        name: Limit(
            value=getattr(service.settings, name),
            setting=variable(name),
            description=Settings.model_fields[name].description or "",
        )
        for name in Settings.model_fields
        if name.startswith("max_") or name in _LIMITS
    }
    fixed = {
        name: Limit(value=value, setting=None, description=description) for name, (value, description) in _FIXED.items()
    }
    return Limits(limits={**set_here, **fixed})


@router.get("/v1/devices", response_model=Devices, dependencies=_KNOWN)
def list_devices(service: Shared) -> Devices:
    """Where jobs are solved: every runner's device, and how it is."""
    runners = service.jobs.list_runners()
    return Devices(devices=[DeviceDocument.of(runner, silent(runner, service.settings)) for runner in runners])


@router.get("/docs", include_in_schema=False)
def get_docs(request: Request) -> HTMLResponse:
    """The OpenAPI document as a page for people, who can try its requests there."""
    return HTMLResponse(openapi_page.render(request.app.openapi()), headers=HEADERS)


@router.get("/health/live", response_model=Health)
async def live() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@router.get("/health/ready", response_model=Health, responses={503: {"model": Health}})
def ready(response: Response, service: Shared) -> Health:
    """Whether jobs can be accepted and done: database, runner, disk."""
    checks = {
        "database": _database(service.jobs),
        "runner": "ok",
        "disk": _disk(service.settings),
    }
    if checks["database"] == "ok":
        checks["runner"], sick = _runners(service)
    else:
        sick = {}
    if service.draining:
        checks["service"] = "it is shutting down"
    good = all(state == "ok" for state in checks.values())
    checks |= sick
    response.status_code = 200 if good else 503
    return Health(status="ok" if good else "unavailable", checks=checks)


def _runners(service: Service) -> tuple[str, dict[str, str]]:
    """Return ``ok`` or the reason why no runner can work; and what is wrong with each runner that is out of service."""
    # The short runner does not count: if it is the only one alive, all longer jobs wait.
    runners = [runner for runner in service.jobs.list_runners() if runner.device != SHORT]
    alive = [runner for runner in runners if not silent(runner, service.settings)]
    sick = {f"runner {r.slot}": f"out of service: {r.detail}" for r in alive if r.state == "sick"}
    if not alive:
        return "no runner is alive", sick
    return ("every runner is out of service" if len(sick) == len(alive) else "ok"), sick


def _database(jobs: JobStore) -> str:
    try:
        jobs.ping()
    except StorageFailed as error:
        return str(error)
    return "ok"


def _disk(settings: Settings) -> str:
    free = shutil.disk_usage(settings.data_dir).free
    return "ok" if free >= _DISK_RESERVE else f"only {free} bytes are free"
