"""Reads the vertices that ``--sources`` and ``--targets`` select."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from service.options import split_names
from storage.errors import InvalidRequest, NotFound
from storage.graph.graph import Graph, index_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Labels = npt.NDArray[np.generic]


def selected_vertices(text: str, graph: Graph | Labels, option: str) -> tuple[int, ...]:
    """Return the vertex indices that the text of ``option`` selects, in its order, each once.

    ``@FILE`` is a file, ``-`` standard input; else the name of a vertex means the vertex, the name of a file means
    the file, and any other text is a list ``A,"B, c",D``.  So a name of both a vertex and a file means the vertex; a
    vertex called ``-`` is written ``"-"``.  A file has one name a line; of a ``.csv`` file it is the first column,
    and a first line that is no vertex where the second one is one is the header, which is skipped with a note.

    Args:
        text: the argument of the option.
        graph: the graph whose vertices are named, or the labels of its vertices.
        option: name of the option, for messages.

    Raises:
        NotFound: a name is no vertex, or ``@FILE`` does not exist.
        InvalidRequest: no name at all, or the file is no text.
    """
    names = _without_header(list(_named(text, option, lambda text: _is_vertex(graph, text))), graph, text)
    found = dict.fromkeys(_index(graph, name, f"{option}{where}") for where, name in names)
    if not found:
        raise InvalidRequest(f"{option}: no vertex in {text!r}", field=option.removeprefix("--"))
    return tuple(found)


def _without_header(names: list[tuple[str, str]], graph: Graph | Labels, text: str) -> list[tuple[str, str]]:
    """Return the names without the first one if that is the header of a table."""
    if not text.lower().endswith(".csv") or len(names) < 2:
        return names
    (where, first), (_, second) = names[:2]
    if not where or _is_vertex(graph, first) or not _is_vertex(graph, second):
        return names
    print(f"note: {first!r}, the first line of {text.removeprefix('@')}, is taken for a header", file=sys.stderr)
    return names[1:]


def selected_names(text: str, option: str) -> list[str]:
    """Return the names that the text of ``option`` selects, without the graph.

    The syntax is that of ``selected_vertices``, except that the name of a file always means the file.
    """
    found = list(dict.fromkeys(name for _, name in _named(text, option, lambda _: False)))
    if not found:
        raise InvalidRequest(f"{option}: no vertex in {text!r}", field=option.removeprefix("--"))
    return found


def _named(text: str, option: str, is_vertex: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Return the names, each with its place for messages."""
    if text == "-":
        return _lines(option, "standard input", sys.stdin.read(), table=False)
    if text.startswith("@"):
        return _file(option, Path(text[1:]))
    if is_vertex(text):
        return iter([("", text)])
    if _is_file(text):
        return _file(option, Path(text))
    return (("", name) for name in split_names([text], option))


def _index(graph: Graph | Labels, name: str, place: str) -> int:
    try:
        return index_of(graph, name)
    except NotFound as error:
        raise NotFound(f"{place}: {error}") from None


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a long list is too long for a name
        return False


def _is_vertex(graph: Graph | Labels, text: str) -> bool:
    try:
        index_of(graph, text)
    except NotFound:
        return False
    return True


def _file(option: str, path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"{option}: {path} is not UTF-8 text ({error.reason})"
        raise InvalidRequest(message, field=option.removeprefix("--")) from error
    except OSError as error:
        raise NotFound(f"{option}: {path} cannot be read: {error.strerror}") from error
    return _lines(option, str(path), text, table=path.suffix.lower() == ".csv")


def _lines(option: str, name: str, text: str, *, table: bool) -> Iterator[tuple[str, str]]:
    """Yield the names with their places for messages; empty lines are left out."""
    rows: Iterable[str] = text.splitlines()
    if table:
        try:
            rows = [row[0] if row else "" for row in csv.reader(rows, strict=True, skipinitialspace=True)]
        except csv.Error as error:
            raise InvalidRequest(f"{option}: {name} is no CSV ({error})", field=option.removeprefix("--")) from error
    for line, row in enumerate(rows, 1):
        if row.strip():
            yield f": {name}, line {line}", row.strip()
