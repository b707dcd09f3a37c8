"""A result as a lazy, labelled array: xarray over the Zarr endpoint, with the client's key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from service.client.flows import job_path
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from xarray import DataArray


def open_array(http: httpx2.Client | httpx2.AsyncClient, job: str, options: dict[str, Any]) -> DataArray:
    """The array ``distances`` of a job's store; reads metadata and labels, not tiles.

    Vertices that were renamed for the wire keep those names here (NumPy has no labels of other kinds).

    Args:
        http: the client's connections, with its address and key.
        job: id of the job.
        options: arguments for ``xarray.open_zarr``.
    """
    try:
        import aiohttp  # noqa: F401 - what fsspec speaks HTTP with
        import fsspec  # noqa: F401
        import xarray
    except ImportError as error:
        raise InvalidRequest(f"to_xarray needs xarray, fsspec and aiohttp: {error}") from error
    url = f"{str(http.base_url).rstrip('/')}/{job_path(job, 'zarr')}"
    key = {name: value for name, value in http.headers.items() if name.lower() == "authorization"}
    asked: dict[str, Any] = {"chunks": None, **options, "storage_options": {"headers": key}}
    found: DataArray = xarray.open_zarr(url, **asked)["distances"]
    return found
