"""Who asks: what a request may do, and whose graphs and jobs it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Depends, Request

Scope = Literal["read", "submit", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "submit", "admin")


@dataclass(frozen=True)
class Caller:
    """The holder of a key; ``owner`` is None where the service tells nobody apart (``APSP_AUTH=false``).

    ``read`` allows questions about one's own graphs and jobs, ``submit`` also changes to them; ``admin`` includes
    both, for everybody's.
    """

    owner: str | None
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Whether the key was given this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, owner: str | None) -> bool:
        """Whether what belongs to ``owner`` exists for this caller."""
        return self.owner is None or owner == self.owner or "admin" in self.scopes


#: everybody, where keys are not asked for
ANYBODY: Final = Caller(None, frozenset(SCOPES))


async def _caller(request: Request) -> Caller:
    found: Caller = request.scope["state"].get("caller", ANYBODY)
    return found


Known = Annotated[Caller, Depends(_caller)]
