"""Recognizes requests that a page of another site makes a browser send (CSRF, DNS rebinding)."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

from service.auth.keys import is_loopback

_QUESTIONS = ("GET", "HEAD", "OPTIONS", "TRACE")


def is_cross_origin(scope: Scope, *, pages: bool = True, allowed: str = "") -> bool:
    """Return whether a request that may change something cannot be proven to come from a page of this service.

    Browsers name the origin of a request in ``Sec-Fetch-Site``, or at least in ``Origin``; pages of other sites can set
    neither.  Other hosts count as other origins, and so do other ports of this host, because cookies ignore ports. The
    scheme is not compared, because a proxy may have ended TLS.

    Args:
        scope: the request.
        pages: the result for a request with neither header.  True where only pages may send requests, because a browser
            always sends one of the headers with a form.  False where programs, which send neither, may send requests.
        allowed: origins whose pages are allowed nevertheless, separated by commas; ``*`` for all.
    """
    if scope["method"] in _QUESTIONS:
        return False
    headers: dict[bytes, str] = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _TOLD_BY}
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is None and origin is None:
        return pages
    if not pages and {"*", origin} & {item.strip() for item in allowed.split(",") if item.strip()}:
        return False
    if site is not None:
        return site != "same-origin"
    try:
        told = urlsplit(origin or "").netloc
    except ValueError:  # urlsplit refuses texts such as "http://["
        return True
    return told.lower() != headers.get(b"host", "").lower()


def is_for_this_host(scope: Scope, listens_on: str) -> bool:
    """Return whether the ``Host`` of a request names this machine; callers check it if keys are not required.

    A page of another site may make its own name resolve to 127.0.0.1 once it is loaded (DNS rebinding).  Its requests
    then have the same origin, and only ``Host``, which browsers always send, shows the foreign name.
    """
    host = next((value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"), None)
    if host is None:
        return True
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name) or name == listens_on.lower()


def names_a_host(scope: Scope) -> bool:
    """Return whether the ``Host`` of a request, if it has one, can be part of a URL, as pages need it for links."""
    return all(_is_host(value) for name, value in scope["headers"] if name == b"host")


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    try:
        parts = urlsplit(b"//" + value)
        _ = parts.port
    except ValueError:  # the brackets hold no address, or the port is no number
        return False
    return parts.netloc == value and parts.username is None


_TOLD_BY = {b"sec-fetch-site", b"origin", b"host"}
