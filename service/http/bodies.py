"""JSON bodies: short ones are checked on the event loop, long ones in a helper process.

The parsers of JSON and of the schemas hold the interpreter's lock while they run.  On the event loop or in a thread,
a body of some megabytes would block all requests, for a time that the client controls.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.types import Receive, Scope

from service.api.fault import Fault, Refused
from service.api.members import parse
from service.api.problems import NO_JSON, problem_of, validation_fault
from service.api.schemas.wire import Wire
from service.state import Service

T = TypeVar("T", bound=Wire)

#: largest body, in bytes, that is parsed on the event loop; that takes a few milliseconds, whatever it contains
SHORT: Final = 1 << 16


class BodyRoute(APIRoute):
    """A route whose long bodies are checked in a helper process."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler whose request object knows the schema of the body, and parses a long body with it."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        form: type[Wire] = self.body_field.field_info.annotation  # type: ignore[assignment]

        async def handler(request: Request) -> Response:
            return await handle(_Asked(request.scope, request.receive, form))

        return handler


class _Asked(Request):
    """A request that parses a long body in a helper process into an instance of the schema.

    FastAPI uses this instance unchanged.
    """

    def __init__(self, scope: Scope, receive: Receive, form: type[Wire]) -> None:
        super().__init__(scope, receive)
        self._shape = form

    async def json(self) -> Any:
        """Return the body as JSON types, a long one as an instance of the schema.  Raises HTTPProblem if invalid."""
        body = await self.body()
        service: Service = self.app.state.service
        try:
            if len(body) <= SHORT:
                return parse(body)
            return await service.checker.run(check_body, self._shape, body, owner=self.state.caller.owner)
        except Refused as error:
            raise problem_of(error) from None


def check_body(form: type[T], body: bytes) -> T:
    """Parse a body into an instance of ``form``.  Raises Refused, with the first errors, if it does not fit."""
    gc.disable()  # JSON has no cycles, and searching millions of lists for cycles takes most of the time
    try:
        return form.model_validate(parse(body))
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise Refused(validation_fault(found)) from None
    except json.JSONDecodeError as error:
        raise Refused(validation_fault([{"loc": ("body", error.pos), "msg": "JSON decode error"}])) from None
    except (ValueError, RecursionError):
        raise Refused(Fault("invalid-request", NO_JSON)) from None
    finally:
        gc.enable()
