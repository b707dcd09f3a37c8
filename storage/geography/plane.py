"""Projects a network to a plane, for maps that the command line and the dashboard draw."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.geography.coordinates import EARTH_RADIUS, Coordinates

if TYPE_CHECKING:
    from storage.graph.graph import Graph

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: The first array of a packed network begins at a multiple of this many bytes.
_ALIGNED: Final = 8
#: The largest safe integer of JavaScript: a larger whole number in JSON may be rounded when it is read.
_SAFE: Final = 2**53 - 1


def projected(coordinates: Coordinates) -> tuple[Floats, Floats]:
    """Return x and y, shape (n,), NaN where a vertex has no coordinates.

    Longitude and latitude become metres in a plane (equirectangular projection), whose scale is correct at the middle
    latitude of the network.  Coordinates of a plane are returned unchanged.
    """
    if not coordinates.geographic:
        return coordinates.x, coordinates.y
    there = coordinates.there
    x = coordinates.x
    if np.ptp(x[there]) > 180:  # keep a network that crosses the date line in one piece
        x = np.where(x < 0, x + 360, x)
    middle = (coordinates.y[there].min() + coordinates.y[there].max()) / 2
    metres = EARTH_RADIUS * math.pi / 180
    return x * metres * math.cos(math.radians(middle)), coordinates.y * metres


def edge_ends(graph: Graph, there: npt.NDArray[np.bool_]) -> Indices:
    """Return the pairs of vertices that arcs join, each pair once, shape (edges, 2), ascending.

    Args:
        graph: the graph; loops are left out.
        there: whether each vertex has coordinates, shape (n,); edges of vertices without coordinates are left out.
    """
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    heads = graph.heads.astype(np.int64)
    kept = there[tails] & there[heads] & (tails != heads)
    tails, heads = tails[kept], heads[kept]
    found = np.unique(np.minimum(tails, heads) * graph.n + np.maximum(tails, heads))
    return np.stack([found // graph.n, found % graph.n], axis=1)


def packed_network(graph: Graph, coordinates: Coordinates, about: dict[str, Any]) -> bytes:
    """Return a network in the form of ``GET /v1/jobs/JOB/network``, which a page draws without further arithmetic.

    Bytes 0 to 3 are the length of a JSON object as a little-endian uint32.  The object follows, then little-endian
    arrays without gaps: ``x`` and ``y`` (float32, n each, NaN for a vertex without coordinates), ``edges`` (int32, two
    vertex indices each), ``sources`` and ``targets`` (int32; the object says how many, null for no array).

    Args:
        graph: the graph.
        coordinates: the coordinates of the vertices; at least one vertex has coordinates.
        about: further members of the object.  A member ``system`` replaces the system of ``coordinates``; ``sources``
            and ``targets`` are arrays of vertex indices, or None.
    """
    x, y = projected(coordinates)
    ends = edge_ends(graph, coordinates.there)
    # Coordinates are sent relative to the middle of the network: float32 then rounds a coordinate by less than a
    # ten-millionth of the network's size.
    origin = [float(np.nanmin(side) + np.nanmax(side)) / 2 for side in (x, y)]
    selected = {name: about[name] for name in ("sources", "targets")}
    counts = {name: None if found is None else len(found) for name, found in selected.items()}
    head = {
        "system": coordinates.system, **about, **counts, "vertices": graph.n, "edges": len(ends), "origin": origin,
        "labels": _exact(graph.labels.tolist()),
    }  # fmt: skip
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    arrays = [(x - origin[0]).astype("<f4"), (y - origin[1]).astype("<f4"), ends.astype("<i4")]
    arrays += [np.asarray(found).astype("<i4") for found in selected.values() if found is not None]
    return b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays)])


def _exact(labels: list[Any]) -> list[Any]:
    """Return labels for JSON: all as texts if a number is so large that a reader of JSON could round it."""
    beyond = any(isinstance(label, int) and abs(label) > _SAFE for label in labels)
    return [str(label) for label in labels] if beyond else labels
