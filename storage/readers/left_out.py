"""Records the names of what a reader did not use, for the receipt."""

from __future__ import annotations

from collections.abc import Iterable

from storage.readers.fields import shown

#: Maximum number of names that are kept, because a file may contain any number of unused names.
_KEPT = 20


class LeftOut:
    """Collects the names of attributes, columns or elements that a reader does not use."""

    def __init__(self, what: str) -> None:
        """Begin without names.  The receipt says ``what`` the names denote, such as "attributes of edges"."""
        self._what = what
        self._names: dict[str, None] = {}
        self._more = False

    def add(self, names: Iterable[str]) -> None:
        """Add names; repeated ones are kept once."""
        for name in names:
            if name in self._names:
                continue
            if len(self._names) < _KEPT:
                self._names[name] = None
            else:
                self._more = True

    def notes(self) -> list[str]:
        """Return a list with a note for the receipt; an empty list if there are no names."""
        if not self._names:
            return []
        more = " and others" if self._more else ""
        return [f"not read: {self._what} {', '.join(map(shown, self._names))}{more}"]
