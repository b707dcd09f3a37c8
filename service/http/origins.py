"""Which requests a page of another site may have made its visitor's browser send."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

from service.auth.keys import is_loopback

_QUESTIONS = ("GET", "HEAD", "OPTIONS", "TRACE")


def comes_from_elsewhere(scope: Scope, *, pages: bool = True, allowed: str = "") -> bool:
    """Whether a request that may change something cannot be proven to come from a page of this service.

    Browsers say where a request comes from in ``Sec-Fetch-Site``, or at least in ``Origin``; pages of other sites can
    set neither.  Other hosts and, as cookies know no ports, other ports of this host are elsewhere.  The scheme is not
    compared: a proxy may have ended TLS.

    Args:
        scope: the request.
        pages: a request that tells neither is from elsewhere, for the pages' own forms always tell; programs, which
            do not, are asked for a key instead.
        allowed: origins of pages that may ask all the same, with commas; ``*`` for all.
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
    except ValueError:  # "http://[" and the like
        return True
    return told.lower() != headers.get(b"host", "").lower()


def asks_for_this_host(scope: Scope, listens_on: str) -> bool:
    """Whether a request was sent to this machine's own name, where nothing but the loopback guards the service.

    A page of another site may let its own name lead to 127.0.0.1 once it is loaded (DNS rebinding): its requests then
    come from the same origin, and only the name in ``Host``, which browsers always send, tells that it is not ours.
    """
    host = next((value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"), None)
    if host is None:
        return True
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name) or name == listens_on.lower()


def names_a_host(scope: Scope) -> bool:
    """Whether the ``Host`` of a request, if it has one, can be part of an address; pages make theirs of it."""
    return all(_is_host(value) for name, value in scope["headers"] if name == b"host")


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    try:
        parts = urlsplit(b"//" + value)
        _ = parts.port
    except ValueError:  # an address in brackets that is none, a port that is no number
        return False
    return parts.netloc == value and parts.username is None


_TOLD_BY = {b"sec-fetch-site", b"origin", b"host"}
