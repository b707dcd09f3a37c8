"""Limits on the files that readers accept, checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from storage.arguments import check_whole
from storage.counted import counted
from storage.errors import InvalidGraph, LimitExceeded

#: Up to this size of content in bytes, the compression ratio is not checked, because the content cannot fill the
#: memory.
HARMLESS_BYTES = 16 << 20
#: A header may declare this many vertices even if the file has less than one arc per hundred vertices.
HARMLESS_VERTICES = 1 << 20


@dataclass(frozen=True)
class ReadLimits:
    """Limits on one graph file.

    Attributes:
        max_bytes: size after decompression.
        max_ratio: size after decompression divided by the size of the file; applies to content of more than 16 MiB.
        max_vertices: vertices declared or found.
        max_arcs: entries of the file before cleaning.
        max_columns: fields in a row of an edge list or link table; a row of a matrix is bounded by ``max_vertices``.

    Raises:
        InvalidRequest: a limit is no whole number, or negative.
    """

    max_bytes: int = 64 << 30
    max_ratio: int = 200
    max_vertices: int = 1 << 27
    max_arcs: int = (1 << 31) - 1
    max_columns: int = 1000

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            check_whole(name, limit, 0)

    def check_bytes(self, size: int, compressed: int | None) -> None:
        """Raise LimitExceeded if the content is too large or expands too much.

        Args:
            size: bytes of the content.
            compressed: bytes of the compressed file; None if the file is not compressed.
        """
        if size > self.max_bytes:
            raise LimitExceeded(
                f"the content is larger than {self.max_bytes:,} bytes (max_bytes)",
                limit=self.max_bytes,
                requested=size,
                setting="max_bytes",
            )
        if compressed is not None and size > max(HARMLESS_BYTES, self.max_ratio * compressed):
            raise LimitExceeded(
                f"{compressed:,} bytes expand to {size:,} or more, over {self.max_ratio} times as many (max_ratio): "
                "this looks like a decompression bomb",
                limit=self.max_ratio,
                requested=size // max(1, compressed),
                setting="max_ratio",
            )

    def check_vertices(self, n: int, line: int | None = None) -> None:
        """Refuse a declared or found number of vertices beyond ``max_vertices``."""
        self._check(n, self.max_vertices, "vertices", "max_vertices", line)

    def check_arcs(self, m: int, line: int | None = None) -> None:
        """Refuse a declared or found number of entries beyond ``max_arcs``."""
        self._check(m, self.max_arcs, "arcs", "max_arcs", line)

    def check_columns(self, width: int, line: int | None = None) -> None:
        """Refuse rows of more than ``max_columns`` fields, because the column parser needs memory for each field."""
        if width > self.max_columns:
            raise InvalidGraph(
                f"a row of {width:,} fields: rows of edges have at most {self.max_columns:,} (max_columns)",
                line=line,
                field="row",
            )

    def _check(self, count: int, limit: int, what: str, setting: str, line: int | None) -> None:
        if count > limit:
            place = "" if line is None else f"line {line}: "
            message = f"{place}{count:,} {what} are more than the {limit:,} allowed ({setting})"
            raise LimitExceeded(message, limit=limit, requested=count, setting=setting)


def check_plausible(n: int, entries: int, line: int | None) -> None:
    """Refuse a declared number of vertices if the file has too few entries for it, before arrays of that length are
    made.
    """
    if n > max(HARMLESS_VERTICES, 100 * entries):
        raise InvalidGraph(
            f"{n:,} vertices are declared, but only {counted(entries, 'arcs')} follow",
            line=line,
            field="vertices",
        )
