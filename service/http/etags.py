"""Entity tags of answers about sealed results.

Results never change, so a tag is a digest of the request and of the result's seal.  The tag of an answer that the
program computes also contains the program's version, because another version may format a number differently or add
floats in another order.  Files of results are sent unchanged, so their tags need no version.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service.http.ranges import matches
from service.state import OpenedAny
from storage.version import VERSION

if TYPE_CHECKING:
    from service.jobs.results import ResultReader


#: The version of this program as it goes into entity tags, so that answers of other versions have other tags.
SOFTWARE: Final = VERSION.encode()


def made_tag(*parts: bytes) -> str:
    """Return the entity tag of an answer that this version of the program makes from ``parts``."""
    digest = blake2b(b"\0".join((SOFTWARE, *parts)), digest_size=12).hexdigest()
    return f'"{digest}"'


def tag_headers(scope: Scope, opened: ResultReader) -> dict[str, str]:
    """Return the headers of an answer about a sealed result: its entity tag, and that caches must revalidate it."""
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    tag = made_tag(scope["path"].encode(errors="replace"), scope["query_string"], accept, opened.matrix.digest.encode())
    # not "immutable": a deleted result must also disappear for clients that have cached it
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


async def _tagged(request: Request, response: Response, opened: OpenedAny) -> dict[str, str]:
    headers = tag_headers(request.scope, opened)
    if matches(request.headers.get("if-none-match", ""), headers["ETag"]):
        raise HTTPException(304, headers=headers)
    response.headers.update(headers)
    return headers


#: entity tag and cache headers of the answer; raises 304 if the client already has this answer
Tagged = Annotated[dict[str, str], Depends(_tagged)]
#: the dependency of ``Tagged`` as a list, for routes that name it in ``dependencies`` and do not use the headers
TAGGED: Final = [Depends(_tagged)]
