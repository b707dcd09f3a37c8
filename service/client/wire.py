"""Translates steps to calls of httpx2, and answers back, for the blocking and the asynchronous driver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from service.client.steps import Lost, Request
from storage.errors import InvalidRequest

#: connections in a client's pool, which limits how many files are transferred at the same time
_CONNECTIONS: Final = 20
_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def settings(url: str | None, key: str | None) -> dict[str, Any]:
    """Return the arguments for an httpx2 client: address and key, from APSP_SERVER and APSP_KEY where they are None.

    Raises InvalidRequest if the address is missing or malformed, or the key is malformed.
    """
    address = os.environ.get("APSP_SERVER", "") if url is None else url
    if not address:
        raise InvalidRequest("which service? give its address (url, --server) or set APSP_SERVER", field="url")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(f"{address!r} is no address of a service, such as http://127.0.0.1:8000", field="url")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("the address holds a user or password; the key goes into key= or APSP_KEY", field="url")
    secret = os.environ.get("APSP_KEY", "") if key is None else key
    if not re.fullmatch(r"[\x21-\x7e]*", secret):
        raise InvalidRequest("the key has characters that no key has", field="key")
    return {
        "base_url": address.rstrip("/") + "/",
        "headers": {"User-Agent": "apsp-client", **({"Authorization": f"Bearer {secret}"} if secret else {})},
        "limits": httpx2.Limits(max_connections=_CONNECTIONS),
        "follow_redirects": False,
    }


def arguments(request: Request) -> dict[str, Any]:
    """Return the arguments of httpx2's ``stream`` for a request, without the content of the file to send."""
    headers = dict(request.headers)
    if request.file is not None:
        headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(request.file.stat().st_size)}
    return {
        "method": request.method,
        "url": request.path,
        "params": {name: value for name, value in request.params.items() if value is not None},
        "headers": headers,
        "json": request.json,
        "timeout": httpx2.Timeout(request.seconds, connect=request.connect_seconds),
    }


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def lost(error: httpx2.RequestError, base: object) -> Lost:
    """Describe an error of the connection."""
    said = str(error) or type(error).__name__
    final = isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError) or "CERTIFICATE" in said
    where = str(base).rstrip("/")
    return Lost(f"no answer from {where}: {said}", not isinstance(error, _NEVER_SENT), final)


def is_body(request: Request, status: int) -> bool:
    """Return whether an answer's body goes into the request's sink."""
    return request.sink is not None and status in (200, 206)
