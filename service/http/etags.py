"""Entity tags of answers about sealed results: they never change, so the question itself is the tag."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service.http.ranges import matches
from service.state import Opened

if TYPE_CHECKING:
    from service.jobs.results import ResultReader


def tag_headers(scope: Scope, opened: ResultReader) -> dict[str, str]:
    """The headers of an answer about a sealed result: its entity tag, and that it is asked for again each time."""
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    question = b"\0".join(
        (scope["path"].encode(errors="replace"), scope["query_string"], accept, opened.matrix.digest.encode())
    )
    # not "immutable": a deleted result has to be gone for those who have seen it, too
    return {"ETag": f'"{blake2b(question, digest_size=12).hexdigest()}"', "Cache-Control": "private, no-cache"}


async def _tagged(request: Request, response: Response, opened: Opened) -> dict[str, str]:
    headers = tag_headers(request.scope, opened)
    if matches(request.headers.get("if-none-match", ""), headers["ETag"]):
        raise HTTPException(304, headers=headers)
    response.headers.update(headers)
    return headers


#: headers for the answer; ends the request with 304 where the client has the answer already
Tagged = Annotated[dict[str, str], Depends(_tagged)]
