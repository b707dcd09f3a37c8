"""The OpenAPI document: FastAPI derives it from the routes, and this module adds what all operations have in common."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from service.api.problems import documented
from service.api.schemas.wire import ProblemDocument
from service.http.gate import needed_scope

#: EVERYWHERE: statuses that any operation under /v1 can return.  WITH_BODY: further statuses of operations with a body.
EVERYWHERE: Final = (401, 403, 417, 422, 429, 431, 500, 503)
WITH_BODY: Final = (408, 413)
_RETRY: Final = {"Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}}}
_WAITING: Final = ("429", "503")


def describe(app: FastAPI, *, keys: bool) -> None:
    """Make ``app.openapi`` add problem documents of errors to all operations and, with ``keys``, the needed scopes."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schemas = schema["components"]["schemas"]
            schemas["ProblemDocument"] = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            if keys:
                schema["components"]["securitySchemes"] = {"key": {
                    "type": "http", "scheme": "bearer", "description": "A key made by `apsp key create NAME`.",
                }}  # fmt: skip
            for path, operations in schema["paths"].items():
                for method, operation in operations.items():
                    _complete(path, method.upper(), operation, keys=keys)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(path: str, method: str, operation: dict[str, Any], *, keys: bool) -> None:
    answers = operation["responses"]
    # docstrings describe their arguments for developers; the document has descriptions of the parameters instead
    operation["description"] = operation.get("description", "").partition("\n\nArgs:")[0]
    if path.startswith("/v1/"):
        statuses = (*EVERYWHERE, *(WITH_BODY if "requestBody" in operation else ()))
        problems = {str(status): answer for status, answer in documented(*statuses).items()}
        answers.update({k: v for k, v in problems.items() if k not in answers or k == "422"})
        if keys:
            operation["security"] = [{"key": [needed_scope(method, path)]}]
        for status in _WAITING:
            answers[status] = {**answers[status], "headers": _RETRY}
    operation["responses"] = dict(sorted(answers.items()))
