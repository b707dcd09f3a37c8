"""A client of the service, sync and async: ``Client(url).solve(graph).distance(u, v)``.

Starts fast: neither the engine nor FastAPI nor zarr is imported here, and NumPy, polars, NetworkX, pandas, xarray and
matplotlib only by the functions that need them.
"""

from service.client.asynchronous import AsyncClient, AsyncJob, AsyncResult
from service.client.blocking import Client, Job, Result
from service.client.displays import Path
from service.client.errors import JobFailed, NoAnswer, Problem, ServiceError, StillOpen

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncResult",
    "Client",
    "Job",
    "JobFailed",
    "NoAnswer",
    "Path",
    "Problem",
    "Result",
    "ServiceError",
    "StillOpen",
]
