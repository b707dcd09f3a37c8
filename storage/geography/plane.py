"""A network as lines of a plane: what maps draw, on the command line and on the page."""

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

    Longitude and latitude become metres of a plane that touches the Earth in the middle of the network; coordinates of
    a plane stay as they are.
    """
    if not coordinates.geographic:
        return coordinates.x, coordinates.y
    there = coordinates.there
    x = coordinates.x
    if np.ptp(x[there]) > 180:  # a network across the date line stays in one piece
        x = np.where(x < 0, x + 360, x)
    middle = (coordinates.y[there].min() + coordinates.y[there].max()) / 2
    metres = EARTH_RADIUS * math.pi / 180
    return x * metres * math.cos(math.radians(middle)), coordinates.y * metres


def edge_ends(graph: Graph, there: npt.NDArray[np.bool_]) -> Indices:
    """Return the pairs of vertices that an arc joins in one direction or in both, shape (edges, 2), ascending.

    Args:
        graph: loops are left out.
        there: which vertices have coordinates, shape (n,); edges of others are left out.
    """
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    heads = graph.heads.astype(np.int64)
    kept = there[tails] & there[heads] & (tails != heads)
    tails, heads = tails[kept], heads[kept]
    found = np.unique(np.minimum(tails, heads) * graph.n + np.maximum(tails, heads))
    return np.stack([found // graph.n, found % graph.n], axis=1)


def packed_network(graph: Graph, coordinates: Coordinates, about: dict[str, Any]) -> bytes:
    """Return a network in the form of ``GET /v1/jobs/JOB/network``, which a page draws without further arithmetic.

    Bytes 0 to 3 are the length of a JSON object as a little-endian uint32.  The object follows, then arrays without
    gaps, little-endian: ``x`` and ``y`` (float32, n each, NaN for a vertex without coordinates), ``edges`` (int32, two
    ends each), ``sources`` and ``targets`` (int32, as many as the object says, none if it says null).

    Args:
        graph: its labels name the vertices.
        coordinates: where the vertices are; at least one has coordinates.
        about: further members of the object; arrays ``sources`` and ``targets`` in it are vertex indices or None.
    """
    x, y = projected(coordinates)
    ends = edge_ends(graph, coordinates.there)
    # Relative to the middle, the rounding of a coordinate to float32 is below a ten-millionth of the network's size.
    origin = [float(np.nanmin(side) + np.nanmax(side)) / 2 for side in (x, y)]
    selected = {name: about[name] for name in ("sources", "targets")}
    counts = {name: None if found is None else len(found) for name, found in selected.items()}
    head = {
        **about, **counts, "vertices": graph.n, "edges": len(ends), "system": coordinates.system, "origin": origin,
        "labels": _exact(graph.labels.tolist()),
    }  # fmt: skip
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    arrays = [(x - origin[0]).astype("<f4"), (y - origin[1]).astype("<f4"), ends.astype("<i4")]
    arrays += [np.asarray(found).astype("<i4") for found in selected.values() if found is not None]
    return b"".join([len(text).to_bytes(4, "little"), text, *(array.tobytes() for array in arrays)])


def _exact(labels: list[Any]) -> list[Any]:
    """Return labels as JSON keeps them everywhere: as text if one is a number beyond those that floats tell apart."""
    beyond = any(isinstance(label, int) and abs(label) > _SAFE for label in labels)
    return [str(label) for label in labels] if beyond else labels
