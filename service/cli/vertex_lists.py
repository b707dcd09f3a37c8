"""Reads the vertices that ``--sources`` and ``--targets`` select."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from service.name_lists import split_names
from storage.errors import InvalidRequest, NotFound
from storage.geography.tables import has_points
from storage.graph.graph import Graph, index_of
from storage.number_texts import looks_like_number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from storage.geography.coordinates import Coordinates
    from storage.geography.snapping import SnappedPoints
    from storage.matrix.sealed import SealedResult

    Labels = npt.NDArray[np.generic]

T = TypeVar("T")

#: What ends the lines of a text file.
_BREAK: Final = re.compile(r"\r\n|\r|\n")


def selected_vertices(
    text: str, graph: Graph | SealedResult, option: str, limit: float | None = None
) -> tuple[int, ...]:
    """Return the vertex indices that the text of ``option`` selects, in the order of the text, each once.

    Args:
        text: the argument of the option, see :func:`selected`.
        graph: the graph whose vertices are named, or a result of it.
        option: name of the option, for messages.
        limit: the farthest that a point may be from its vertex; None for no limit.

    Raises:
        NotFound, InvalidRequest: :func:`selected` raises it.
    """
    return selected(text, graph, option, limit)[0]


def selected(
    text: str, graph: Graph | SealedResult, option: str, limit: float | None = None
) -> tuple[tuple[int, ...], SnappedPoints | None]:
    """Return the vertex indices that a text selects, in its order, each once; and its snapped points, or None.

    ``@FILE`` is a file, and ``-`` is standard input.  Otherwise the name of a vertex means the vertex, the name of a
    file means the file, and any other text is a list ``A,"B, c",D``.  So a name of both a vertex and a file means the
    vertex; a vertex called ``-`` is written ``"-"``.  A file has one name on each line; in a
    ``.csv`` file, it is in the first column.  If the first line does not name a vertex and the second line does, the
    first line is the header, which is skipped with a note.  A table with columns lon and lat (or x and y) holds points:
    each means the vertex nearest to it, and a note is printed.

    Args:
        text: the argument of the option.
        graph: the graph whose vertices are named, or a result of it.
        option: name of the option, for messages.
        limit: the farthest that a point may be from its vertex; None for no limit.

    Raises:
        NotFound: a name is no vertex, or ``@FILE`` does not exist.
        InvalidRequest: there is no name, the file is no text, the graph has no coordinates for points, or a point is
            too far away.
    """
    labels = graph.labels
    table = None if text == "-" or (text[:1] != "@" and _is_vertex(labels, text)) else _table_of_points(text)
    if table is not None:
        points = told_points(table, graph.coordinates, option, limit)
        return tuple(dict.fromkeys(points.vertices.tolist())), points
    names = _without_header(list(_named(text, option, lambda text: _is_vertex(labels, text))), labels, text)
    found = dict.fromkeys(_index(labels, name, f"{option}{where}") for where, name in names)
    if not found:
        raise InvalidRequest(f"{option}: no vertex in {text!r}", field=option.removeprefix("--"))
    return tuple(found), None


def _table_of_points(text: str) -> Path | None:
    path = Path(text.removeprefix("@"))
    return path if _is_file(str(path)) and has_points(path) else None


def sent_points(text: str, option: str) -> list[dict[str, Any]] | None:
    """Return the points of a table in the form of a JSON request; None if ``text`` is no table of points.

    Args:
        text: the argument of an option, a file that may begin with ``@``.
        option: name of the option, for messages.

    Raises:
        NotFound, InvalidRequest: ``storage.geography.tables.read_points`` refuses the table, a point has no
            coordinates, or an id occurs twice.  A file that names the plane of its coordinates is refused, too, because
            a request cannot name a plane.
    """
    path = None if text == "-" else _table_of_points(text)
    return None if path is None else points_of(path, option)


def points_of(path: Path, option: str) -> list[dict[str, Any]]:
    """Return the points of a table, see :func:`sent_points`."""
    from storage.geography.coordinates import LONLAT
    from storage.geography.snapping import ids_and_names
    from storage.geography.tables import read_points

    table = read_points(path)
    if table.system not in (None, LONLAT):
        message = f"{option}: {path} says that its coordinates are those of a plane, which a request cannot say"
        raise InvalidRequest(f"{message}; write them as columns x and y", field=option.removeprefix("--"))
    x, y = ("lon", "lat") if table.system == LONLAT else ("x", "y")
    ids, names = ids_and_names(table, option.removeprefix("--"))
    found = []
    for row, (key, east, north) in enumerate(zip(ids, table.x.tolist(), table.y.tolist(), strict=True)):
        if east != east or north != north:  # noqa: PLR0124 - it is not a number
            message = f"{option}: {table.where(row)}: the point has no coordinates"
            raise InvalidRequest(message, field=option.removeprefix("--"))
        name = {} if names is None else {"name": names[row]}
        found.append({"id": key, **name, x: east, y: north})
    return found


def points_or_names(tables: Sequence[Path], names: Sequence[str]) -> list[Any]:
    """Return a list with a point, in the form of a request, for each name of a point.

    Any other name must name a vertex, and stays as it is.

    Args:
        tables: files of points.
        names: ids or names of points, or vertices.

    Raises:
        InvalidRequest: several points have the same name of ``names``, or :func:`points_of` refuses a table.
    """
    known: dict[str, list[dict[str, Any]]] = {}
    for path in different_files(tables):
        for point in points_of(path, "--points"):
            for name in dict.fromkeys((point["id"], point.get("name") or point["id"])):
                known.setdefault(name, []).append(point)
    for name in names:
        if len(known.get(name, ())) > 1:
            message = f"--points: {len(known[name])} points are called {name!r}"
            raise InvalidRequest(message, field="points")
    return [known[name][0] if name in known else name for name in names]


def different_files(paths: Sequence[Path]) -> list[Path]:
    """Return the first path to each file: the points of a file that is given twice are there once."""
    found: dict[Path, Path] = {}
    for path in paths:
        found.setdefault(path.resolve(), path)
    return list(found.values())


def told_points(path: Path, coordinates: Coordinates | None, option: str, limit: float | None) -> SnappedPoints:
    """Snap the points of a table to vertices, and print on standard error how far the vertices are.

    Args:
        path: the table.
        coordinates: coordinates of the vertices; None if the graph has none.
        option: name of the option, for messages.
        limit: the farthest that a point may be from its vertex; None for no limit.

    Raises:
        NotFound, InvalidRequest: ``storage.geography.snapping.snap_file`` refuses the table, or a point is farther from
            its vertex than ``limit``.
    """
    from storage.geography.snapping import snap_file

    points = snap_file(path, coordinates)
    points.check_limit(limit)
    print(f"note: {option}: {points.note()}", file=sys.stderr)
    return points


def _without_header(names: list[tuple[str, str]], graph: Labels, text: str) -> list[tuple[str, str]]:
    """Return the names, without the header of a table.  Where the labels are numbers, a number is no header."""
    if not text.lower().endswith(".csv") or len(names) < 2:
        return names
    (where, first), (_, second) = names[:2]
    if not where or _is_vertex(graph, first) or not _is_vertex(graph, second):
        return names
    if graph.dtype.kind in "iu" and looks_like_number(first):
        return names
    print(f"note: {first!r}, the first line of {text.removeprefix('@')}, is taken for a header", file=sys.stderr)
    return names[1:]


def values_of(text: str, field: str, kind: Callable[[str], T]) -> list[T]:
    """Return the values in a list with commas.

    Args:
        text: the list, such as ``15,30``.
        field: name of the option, for messages.
        kind: converts the text of one value.

    Raises:
        InvalidRequest: a value cannot be converted.
    """
    found = []
    for place in split_names([text], field, "value"):
        try:
            found.append(kind(place))
        except ValueError as error:
            raise InvalidRequest(f"--{field} takes numbers with commas: {error}", field=field) from None
    return found


def selected_names(text: str, option: str) -> list[str]:
    """Return the names that the text of ``option`` selects, without the graph.

    The syntax is that of ``selected_vertices``, except that the name of a file always means the file.
    """
    found = list(dict.fromkeys(name for _, name in _named(text, option, lambda _: False)))
    if not found:
        raise InvalidRequest(f"{option}: no vertex in {text!r}", field=option.removeprefix("--"))
    return found


def _named(text: str, option: str, is_vertex: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Return pairs of a position in the input, such as ``: FILE, line 3`` for messages, and the name found there."""
    if text == "-":
        return _lines(option, "standard input", sys.stdin.read().removeprefix("\ufeff"), table=False)
    if text.startswith("@"):
        return _file(option, Path(text[1:]))
    if is_vertex(text):
        return iter([("", text)])
    if _is_file(text):
        return _file(option, Path(text))
    return (("", name) for name in split_names([text], option))


def _index(graph: Labels, name: str, place: str) -> int:
    try:
        return index_of(graph, name)
    except NotFound as error:
        raise NotFound(f"{place}: {error}") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a text that lists many vertices is too long for a file name
        return False


def _is_vertex(graph: Labels, text: str) -> bool:
    try:
        index_of(graph, text)
    except NotFound:
        return False
    return True


def _file(option: str, path: Path) -> Iterator[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # line breaks between quotes stay as they are
            text = file.read()
    except UnicodeDecodeError as error:
        message = f"{option}: {path} is not UTF-8 text ({error.reason})"
        raise InvalidRequest(message, field=option.removeprefix("--")) from error
    except OSError as error:
        raise NotFound(f"{option}: {path} cannot be read: {error.strerror}") from error
    return _lines(option, str(path), text, table=path.suffix.lower() == ".csv")


def _lines(option: str, name: str, text: str, *, table: bool) -> Iterator[tuple[str, str]]:
    """Yield pairs of a position in the input (for messages) and the name found there.

    Lines that are empty or have only blanks are left out, but a name of a table that is empty or blank between quotes
    is a name.
    """
    rows: Iterable[tuple[int, str]] = enumerate(_BREAK.split(text), 1)
    if table:
        try:
            rows = list(_first_column(text))
        except csv.Error as error:
            raise InvalidRequest(f"{option}: {name} is no CSV ({error})", field=option.removeprefix("--")) from error
    for line, row in rows:
        if row.strip() or table:
            yield f": {name}, line {line}", row


def _first_column(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the name of each row of a table that has a name in its first column."""
    lines = io.StringIO(text, newline="").readlines()
    reader = csv.reader(lines, strict=True, skipinitialspace=True)
    first = 0
    for row in reader:
        # Module csv does not tell an empty field from one that is empty between quotes, which is a name.  The blanks
        # before a quote are skipped; those before a name without quotes may be a part of it.
        name = lines[first].lstrip(" ")
        if row and (row[0].strip() or name.startswith('"')):
            blanks = "" if name.startswith('"') else " " * (len(lines[first]) - len(name))
            yield reader.line_num, blanks + row[0]
        first = reader.line_num


def tell_points(answer: dict[str, Any], ends: Sequence[Any], names: Sequence[str]) -> None:
    """Print on standard error to which vertices points were taken, and remove these facts from ``answer``."""
    for side, end, name in zip(("source", "target"), ends, names, strict=False):
        if isinstance(end, dict):
            told = answer.pop(f"{side}_point", None) or answer.pop(f"{side}_points")[0]
            text = f"{told['snap']:,.0f}{' m' if 'lon' in told else ''} from vertex {told['vertex']}"
            print(f"note: {name} is a point, {text}{'; FAR' if told['far'] else ''}", file=sys.stderr)
