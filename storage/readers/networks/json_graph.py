"""Graphs in JSON as NetworkX writes them: node-link, adjacency and Cytoscape data; files .cyjs are Cytoscape data.

Node-link data have ``nodes`` with ``id``, and ``links`` or ``edges`` with ``source`` and ``target``.  Adjacency data
have ``nodes``, and in ``adjacency`` a list of neighbours for each node.  Cytoscape data have ``elements``, either as
lists ``nodes`` and ``edges`` or as one list; each element has ``data``.  graphology writes node-link data whose nodes
have a ``key``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from storage.errors import InvalidGraph, InvalidRequest
from storage.readers.fields import is_whole, shown
from storage.readers.left_out import LeftOut
from storage.readers.lengths import plain
from storage.readers.named import NamedGraph
from storage.readers.networks.json_walk import Number, Walker
from storage.readers.parsed import Parsed, ReadOptions
from storage.readers.source import Source

_KNOWN = (
    "read are 'nodes' with 'links' or 'edges' (node-link), 'nodes' with 'adjacency', and 'elements' (Cytoscape), "
    "as networkx.node_link_data, adjacency_data and cytoscape_data write them"
)
#: Keys of an edge that say whether it is directed.
_DIRECTIONS = ("directed", "undirected")
#: Keys that say which program wrote the file; the receipt does not mention them.
_PROGRAM = frozenset({"format_version", "generated_by", "target_cytoscapejs_version"})


def read(source: Source, options: ReadOptions) -> Parsed:
    """Read the file; raises the errors of ``read_graph``."""
    walker = Walker(source.text())
    reader = _Json(walker, options)
    if walker.peek() != "{":
        raise InvalidGraph(f"the file holds no JSON object; {_KNOWN}", line=walker.line, field="JSON")
    for key in walker.members():
        reader.member(key)
    walker.end()
    return reader.finish()


class _Json:
    """The parts of the file that have been read so far."""

    def __init__(self, walker: Walker, options: ReadOptions) -> None:
        self._walker = walker
        self._graph = NamedGraph(options)
        self._seen: dict[str, int] = {}
        self._directed: bool | None = None
        self._multigraph: bool | None = None
        self._names: list[str] = []
        self._kinds: dict[str, set[type]] = {"node": set(), "edge": set()}
        self._options = options
        self._own: set[bool | None] = set()
        self._member: str | None = None
        self._left_out = LeftOut("members of the file")
        self._of_graph = LeftOut("attributes of the graph")
        self._of_elements = LeftOut("members of elements")

    def member(self, key: str) -> None:
        """Read the value of a key of the outermost object."""
        walker = self._walker
        self._seen[key] = walker.line
        if key in ("directed", "multigraph"):
            value = walker.value()
            if not isinstance(value, bool):
                raise InvalidGraph(f"{key!r} is neither true nor false", line=walker.line, field=key)
            if key == "directed":
                self._state(value, key)
            else:
                self._multigraph = value
        elif key in ("graph", "data", "attributes"):
            self._graph_attributes(key)
        elif key == "options":
            self._options_of_graphology()
        elif key == "nodes":
            self._each("nodes", self._node)
        elif key in ("links", "edges"):
            self._each(key, self._edge)
        elif key == "adjacency":
            self._adjacency()
        elif key == "elements":
            self._elements()
        else:
            walker.value()
            if key not in _PROGRAM:
                self._left_out.add([key])

    def _state(self, directed: bool, key: str) -> None:
        """Store whether all edges are directed, as the key ``key`` says."""
        if self._directed not in (None, directed) and self._options.directed is None:
            message = "'directed' and the type in 'options' say the opposite; say --directed or --undirected"
            raise InvalidGraph(message, line=self._walker.line, field=key)
        self._directed = directed

    def _options_of_graphology(self) -> None:
        """Read options such as ``{"type": "mixed"}``: edges of mixed graphs are directed unless they say otherwise."""
        value = self._walker.value()
        kind = value.get("type") if isinstance(value, dict) else None
        known = {"directed": True, "mixed": True, "undirected": False}
        if kind is None:
            self._left_out.add(["options"])
        elif kind in known:
            self._state(known[kind], "options")
        else:
            message = f"a graph of type {shown(_text(kind))}; known are {', '.join(known)}"
            raise InvalidGraph(message, line=self._walker.line, field="options")

    def _graph_attributes(self, key: str) -> None:
        """Read attributes of the graph: an object, or a list of pairs as ``cytoscape_data`` writes them."""
        value = self._walker.value()
        if isinstance(value, dict):
            if "nodes" in value or "edges" in value:
                message = (
                    f"'graph' holds 'nodes' or 'edges': this is the JSON Graph Format, which is not read; {_KNOWN}"
                )
                raise InvalidGraph(message, line=self._seen[key], field=key)
            self._of_graph.add(value)
        elif isinstance(value, list):
            known = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
            self._of_graph.add(_text(pair[0]) for pair in known)
            if len(known) < len(value):
                self._left_out.add([key])
        elif value is not None:
            self._left_out.add([key])

    def _each(self, key: str, take: Callable[[dict[str, Any], int], None], *, inner: bool = False) -> None:
        if self._walker.peek() != "[":
            raise InvalidGraph(f"{key!r} is no list; {_KNOWN}", line=self._walker.line, field=key)
        for i in self._walker.items():
            self._walker.peek()
            line = self._walker.line
            value = self._walker.value()
            try:
                if not isinstance(value, dict):
                    raise InvalidGraph(f"expected an object, found {shown(_text(value))}", line=line)
                take(self._data(value, line) if inner else value, line)
            except InvalidGraph as error:
                # The whole file may be a single line, so the error names the element, too.
                message = str(error).removeprefix(f"line {error.line}: ")
                raise InvalidGraph(f"{key}[{i}]: {message}", line=error.line, field=error.field) from None

    def _data(self, element: dict[str, Any], line: int) -> dict[str, Any]:
        """Return the ``data`` of an element of Cytoscape; its other members (position, selected, ...) only describe
        pictures.
        """
        data = element.get("data")
        if not isinstance(data, dict):
            raise InvalidGraph("an element without 'data'", line=line, field="data")
        if element.get("group") == "edges" and "source" not in data:
            raise InvalidGraph("an edge without 'source'", line=line, field="source")
        self._of_elements.add(name for name in element if name != "data")
        return data

    def _elements(self) -> None:
        if self._walker.peek() == "[":
            self._each("elements", self._element, inner=True)
            self._kinds["edge"].clear()
            return
        if self._walker.peek() != "{":
            message = f"'elements' is no object of 'nodes' and 'edges'; {_KNOWN}"
            raise InvalidGraph(message, line=self._walker.line, field="elements")
        for key in self._walker.members():
            if key not in ("nodes", "edges"):
                raise InvalidGraph(f"elements of the kind {shown(key)}", line=self._walker.line, field="elements")
            self._each(key, self._node if key == "nodes" else self._edge, inner=True)
        # NetworkX writes ids of nodes as text here, but not the ends of edges, so their types are not compared.
        self._kinds["edge"].clear()

    def _element(self, data: dict[str, Any], line: int) -> None:
        """Add an element of a flat list, as in cytoscape.js: it is an edge if it has a source and a target."""
        ends = ("source" in data) + ("target" in data)
        if ends == 1:
            raise InvalidGraph("an element with only one of 'source' and 'target'", line=line, field="elements")
        (self._edge if ends else self._node)(data, line)

    def _node(self, node: dict[str, Any], line: int) -> None:
        member = self._id_of_nodes(node, line)
        name = self._name(node[member], "node", line)
        if "adjacency" not in self._seen:
            self._names.append(name)
        self._graph.node(name, line, {key: _text(value) for key, value in node.items() if key != member})

    def _id_of_nodes(self, node: dict[str, Any], line: int) -> str:
        """Return the name of the member that holds a node's id: ``id``, or ``key`` in files of graphology; refuse files
        that mix them.
        """
        member = "key" if "id" not in node and "key" in node else "id"
        if member not in node or self._member not in (None, member):
            raise InvalidGraph(f"a node without {self._member or 'id'!r}", line=line, field="id")
        self._member = member
        return member

    def _edge(self, edge: dict[str, Any], line: int) -> None:
        for key in ("source", "target"):
            if key not in edge:
                raise InvalidGraph(f"an edge without {key!r}", line=line, field=key)
        ends = [self._name(edge[key], "edge", line) for key in ("source", "target")]
        own = _one_way(edge, line)
        self._own.add(own)
        if self._directed is False and own and self._options.directed is None:
            message = "an edge with 'directed': true in a graph with 'directed': false; say --directed or --undirected"
            raise InvalidGraph(message, line=line, field="directed")
        members = _attributes(edge, line, ("source", "target", "key", *_DIRECTIONS))
        self._graph.edge(ends[0], ends[1], line, _with_inner(members, edge, line), directed=own)

    def _adjacency(self) -> None:
        """Read the lists of neighbours, one for each node in the order of ``nodes``."""
        walker = self._walker
        rows = 0
        for row in walker.items():
            if row >= len(self._names):
                message = f"'adjacency' has more lists than the {len(self._names)} 'nodes' before it"
                raise InvalidGraph(message, line=walker.line, field="adjacency")
            tail = self._names[row]

            def take(neighbour: dict[str, Any], line: int, tail: str = tail) -> None:
                if "id" not in neighbour:
                    raise InvalidGraph("a neighbour without 'id'", line=line, field="id")
                head = self._name(neighbour["id"], "edge", line)
                self._graph.edge(tail, head, line, _attributes(neighbour, line, ("id", "key")))

            self._each(f"adjacency[{row}]", take)
            rows += 1
        if rows != len(self._names):
            message = f"'adjacency' has {rows} lists for {len(self._names)} 'nodes'"
            raise InvalidGraph(message, line=walker.line, field="adjacency")

    def _name(self, value: Any, where: str, line: int) -> str:
        """Return an id as text, and record its type; refuse an id that is neither text nor a whole number."""
        if not isinstance(value, str) or (isinstance(value, Number) and not is_whole(value)):
            found = shown(_text(value))
            raise InvalidGraph(f"an id is text or a whole number, found {found}", line=line, field="id")
        self._kinds[where].add(type(value))
        if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            raise InvalidGraph(
                f"{shown(value)} cannot be a label: it holds half a character or NUL", line=line, field="id"
            )
        return str(value)

    def _check_weight(self, name: str | None) -> None:
        """Refuse the attribute ``value`` as a length unless the caller named it: in files of D3, ``value`` counts what
        two vertices share.
        """
        if name is not None and plain(name) == "value" and self._options.column is None:
            raise InvalidRequest(
                f"{name!r} in JSON mostly counts what two vertices share (the larger, the closer), which is no length: "
                f"say --weight {name} to take it as it is, --length-of '1 / {name}' to make a length of it, or "
                "--unweighted to count arcs",
                field="weight",
            )

    def _check_single(self, parsed: Parsed, line: int) -> None:
        """Refuse an edge with two weights in a file that says that it has no parallel edges."""
        arcs, weights = parsed.arcs, parsed.arcs.weights
        if self._multigraph is not False or weights is None or parsed.labels is None:
            return
        tails, heads = arcs.tails, arcs.heads
        directed = parsed.directed if self._options.directed is None else self._options.directed
        if not directed and not parsed.mirrored:
            tails, heads = np.minimum(tails, heads), np.maximum(tails, heads)
        order = np.lexsort((weights, heads, tails))
        tails, heads, weights = tails[order], heads[order], weights[order]
        twice = (tails[1:] == tails[:-1]) & (heads[1:] == heads[:-1]) & (tails[1:] != heads[1:])
        if (twice := twice & (weights[1:] != weights[:-1])).any():
            at = int(np.flatnonzero(twice)[0])
            ends = " - ".join(shown(str(parsed.labels[end[at]])) for end in (tails, heads))
            message = (
                f"'multigraph' is false, and the edge {ends} has the weights {weights[at]} and {weights[at + 1]}; "
                "leave one of them, or say 'multigraph': true if they are parallel edges"
            )
            raise InvalidGraph(message, line=line, field="multigraph")

    def finish(self) -> Parsed:
        """Return the arcs; refuse a file that is not exactly one of node-link, adjacency and Cytoscape data."""
        forms = [key for key in ("links", "edges", "adjacency", "elements") if key in self._seen]
        if len(forms) != 1 or ("nodes" in self._seen) == (forms == ["elements"]):
            found = ", ".join(map(shown, list(self._seen)[:10])) or "nothing"
            if "features" in self._seen:
                message = "this is GeoJSON, which is not read; write its edges as CSV or Parquet, with their vertices"
                raise InvalidGraph(f"{message}: gdf.drop(columns='geometry').to_csv('edges.csv')", field="JSON")
            raise InvalidGraph(f"the members are {found}; {_KNOWN}", field="JSON")
        if self._kinds["node"] and self._kinds["edge"] - self._kinds["node"]:
            raise InvalidGraph(
                "the ids of nodes and the ends of edges must be all text or all numbers: 1 and '1' are two nodes",
                line=self._seen[forms[0]],
                field="id",
            )
        notes = []
        if self._member == "key" and self._directed is None:
            self._directed = True
            notes = ["'options' is missing: edges that do not say 'undirected' are directed, as in graphology"]
        directed = bool(self._directed)
        parsed = self._graph.finish(directed, mirrored=forms == ["adjacency"] and not directed)
        self._check_single(parsed, self._seen[forms[0]])
        self._check_weight(parsed.weight_column)
        if self._directed is None and len(self._own) > 1 and None in self._own and self._options.directed is None:
            message = "some edges say whether they are 'directed', others do not; say --directed or --undirected"
            raise InvalidGraph(message, field="directed")
        if self._directed is None and self._own <= {None}:
            parsed.notes.append(
                "'directed' is missing: taken as undirected, as NetworkX does; --directed for the other"
            )
        parsed.notes += notes
        for left_out in (self._of_graph, self._of_elements, self._left_out):
            parsed.notes.extend(left_out.notes())
        return parsed


def _one_way(edge: dict[str, Any], line: int) -> bool | None:
    """Return whether an edge is directed; None if the edge does not say it."""
    found: bool | None = None
    for key in _DIRECTIONS:
        if key not in edge:
            continue
        value = edge[key]
        if not isinstance(value, bool) or found is not None:
            raise InvalidGraph(f"{key!r} of this edge is not understood: {_text(value)}", line=line, field=key)
        found = value == (key == "directed")
    return found


def _with_inner(members: dict[str, tuple[str, int]], edge: dict[str, Any], line: int) -> dict[str, tuple[str, int]]:
    """Return the attributes of an edge, including those in its member ``attributes`` (graphology)."""
    inner = edge.get("attributes")
    if not isinstance(inner, dict):
        return members
    members = {key: value for key, value in members.items() if key != "attributes"}
    both = sorted(members.keys() & inner.keys())
    if both:
        message = f"{both[0]!r} stands in an edge and in its 'attributes', too"
        raise InvalidGraph(message, line=line, field=both[0])
    return members | _attributes(inner, line, ())


def _attributes(edge: dict[str, Any], line: int, ends: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    if "key" in ends and isinstance(edge.get("key"), list | dict):
        raise InvalidGraph("the 'key' of an edge is a text or a number", line=line, field="key")
    return {key: (_text(value), line) for key, value in edge.items() if key not in ends}


def _text(value: Any) -> str:
    """Return a JSON value as text.

    Strings are returned without their quotes, numbers as they are written in the file, other values as ``true``,
    ``false`` or ``null``.  Every list and every object becomes ``[...]``.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | dict):
        return "[...]"
    return "null" if value is None else str(value).lower()
