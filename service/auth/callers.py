"""Says what the caller of a request may do, and which graphs and jobs the caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Depends, Request

Scope = Literal["read", "submit", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "submit", "admin")


@dataclass(frozen=True)
class Caller:
    """The holder of a key; ``owner`` is None if the service requires no keys (``APSP_AUTH=false``).

    The scope ``read`` allows queries of the caller's own graphs and jobs.  ``submit`` also allows changes to them.
    ``admin`` allows queries and changes for the graphs and jobs of all owners.
    """

    owner: str | None
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Return whether the key has this scope, or the scope ``admin``, which includes all."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, owner: str | None) -> bool:
        """Return whether the caller may see what belongs to ``owner``."""
        return self.owner is None or owner == self.owner or "admin" in self.scopes


#: the caller of every request if keys are not required
ANYBODY: Final = Caller(None, frozenset(SCOPES))


async def _caller(request: Request) -> Caller:
    found: Caller = request.scope["state"].get("caller", ANYBODY)
    return found


Known = Annotated[Caller, Depends(_caller)]
