"""Prints the answers of commands on standard output, as text or as one JSON object."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.units import format_seconds
from storage.errors import StorageFailed
from storage.graph.units import measured, measured_by, said_unit

if TYPE_CHECKING:
    from storage.graph.graph import Graph


class OutputClosedError(Exception):
    """The reader of standard output has closed it, as ``head`` does; this is not an error."""


def emit(lines: str | Iterable[str]) -> None:
    """Print lines on standard output, all of them flushed.  Raises OutputClosedError if the reader has closed it."""
    try:
        for line in [lines] if isinstance(lines, str) else lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError as error:
        # Python flushes standard output once more at exit, which would fail again and print a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputClosedError from error
    except OSError as error:
        raise StorageFailed(f"standard output cannot be written: {error.strerror or error}") from error


def shown_unit(unit: str | None, shown: str) -> str | None:
    """Return the text that says what distances measure.

    On a terminal, where people read the text, it is ``shown``.  Elsewhere it is ``unit``: programs read the text there,
    and may not expect the name of a column after a number.

    Args:
        unit: the unit of the weights; None if it is not known.
        shown: the longer text of ``storage.graph.units.measured``, which web pages show.
    """
    return (shown or None) if sys.stdout.isatty() else unit


def unit_of_graph(graph: Graph) -> str | None:
    """Return the text that says what the distances of a graph measure; see :func:`shown_unit`."""
    return shown_unit(graph.unit, measured(graph.unit, graph.weight_column, weighted=graph.weighted))


def unit_of_facts(facts: Mapping[str, Any]) -> str | None:
    """Return the text that says what the distances of a store measure; see :func:`shown_unit`.

    Args:
        facts: the attributes of the store, as ``storage.graph.units.measured_by`` takes them.
    """
    return shown_unit(said_unit(facts["unit"]), measured_by(facts))


def emit_done(place: object, seconds: Mapping[str, float], lines: Iterable[str]) -> None:
    """Print that a result is complete.

    Args:
        place: where the result is.
        seconds: seconds of each phase.
        lines: further lines to print.
    """
    phases = ", ".join(f"{name} {format_seconds(value)}" for name, value in seconds.items())
    emit([f"{place}: done ({phases})", *lines])


def emit_json(value: Mapping[str, object]) -> None:
    """Print one JSON object; see :func:`jsonable`."""
    emit(json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False))


def jsonable(value: object) -> object:
    """Return ``value`` as strict JSON: NumPy scalars and arrays become numbers and lists, infinities and NaN null."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        dtype = getattr(value, "dtype", None)
        return jsonable(shortest(value) if dtype == "float32" and not value.shape else value.tolist())  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def shortest(value: object) -> float:
    """Return a float32 scalar as the float with the fewest digits that rounds to it: 0.1 and not 0.10000000149."""
    return float(str(value))


def number(value: object) -> str:
    """Return a distance or weight as text, with the fewest digits; whole numbers without a point."""
    return str(value).removesuffix(".0")


def table(rows: Sequence[Sequence[str]], *, right: Iterable[int] = (), indent: str = "") -> list[str]:
    """Return the rows as aligned lines; columns whose number is in ``right`` are aligned to the right.

    Args:
        rows: cells as text, the same number in each row.
        right: indices of the columns that are aligned to the right.
        indent: text before each line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    flush = set(right)
    return [
        indent
        + "  ".join(
            cell.rjust(width) if column in flush else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
