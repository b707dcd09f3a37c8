"""Which requests for a change a page of another site may have made its visitor's browser send."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import Scope

_QUESTIONS = ("GET", "HEAD", "OPTIONS")


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


_TOLD_BY = {b"sec-fetch-site", b"origin", b"host"}
