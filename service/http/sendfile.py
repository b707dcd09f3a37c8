"""Files that the kernel or the reverse proxy sends, without their bytes passing through this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from service.settings import Settings

#: name of the scope extension: an awaitable function (file descriptor, offset, count); see ``service.http.protocol``
SENDFILE: Final = "apsp.sendfile"
#: files of a sealed store never change
CACHE: Final = "private, max-age=31536000, immutable"


def media_type(key: str) -> str:
    """The media type of a file of a store."""
    return "application/json" if key.endswith(".json") else "application/octet-stream"


def proxy_headers(settings: Settings, job_id: str, key: str) -> dict[str, str]:
    """Headers of an answer that lets the reverse proxy send a file, with ranges and conditions (X-Accel-Redirect).

    Args:
        settings: the service's settings.
        job_id: id of the job.
        key: path of the file in the job's store.
    """
    folder = settings.store(job_id).relative_to(settings.data_dir).as_posix()
    target = f"{settings.accel_prefix.rstrip('/')}/{folder}/{key}"
    return {"X-Accel-Redirect": target, "Cache-Control": CACHE, "Content-Type": media_type(key)}
