"""Tables of demands: how much is to go from one vertex to another, read from CSV or Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from storage.arguments import check_given_paths, check_texts
from storage.errors import InvalidRequest, NotFound
from storage.graph.inputs import label_array
from storage.graph.vertex_table import (
    Array,
    Indices,
    check_filled,
    check_header,
    frame_in,
    numbers_in,
    place_in,
    vertices_of,
)


@dataclass(frozen=True, eq=False)
class Demands:
    """Demands: for several pairs of vertices, how much is to go from one to the other.  A pair may occur repeatedly.

    Attributes:
        origins, destinations: vertex indices, int64, shape (demands,).
        flows: how much is to go, float64, shape (demands,); finite, at least 0.
    """

    origins: Indices
    destinations: Indices
    flows: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.flows)


def read_demands(path: str | Path, labels: Array, flow: str | None = None) -> Demands:
    """Read demands: the first column names origins, the second destinations, the third holds flows.

    Args:
        path: a CSV file with a header, or a Parquet file.
        labels: the labels of the graph's vertices, ascending, shape (n,).
        flow: the name of the column of flows; None for the third column.

    Returns:
        The demands, in the order of the file.

    Raises:
        NotFound: the file, the column, or a vertex of the file does not exist.
        InvalidRequest: the file is no table of this form, has no header or no rows, or a flow is negative or no finite
            number.
    """
    check_given_paths(path=path)
    check_texts(flow=flow)
    path, labels = Path(path), label_array(labels)
    frame = frame_in(path, "demands")
    names = frame.columns
    if path.suffix.lower() == ".csv":
        check_header(path, names, labels, "demands")
    if len(names) < 3:
        raise InvalidRequest(
            f"{path} has the columns {', '.join(names) or '(none)'}; demands need an origin, a destination and a flow",
            field="demands",
        )
    check_filled(path, frame, "demands")
    if flow is not None and flow not in names[2:]:
        raise NotFound(f"{path} has no column {flow!r} after the second; there are {', '.join(names[2:])}")
    flows = numbers_in(path, frame[flow or names[2]], "demands")
    below = np.flatnonzero(flows < 0)
    if len(below):
        row = int(below[0])
        raise InvalidRequest(
            f"{place_in(path, row)}: the flow is {flows[row]:g}, and none may be negative", field="demands"
        )
    origins, destinations = (vertices_of(path, frame[name], labels) for name in names[:2])
    return Demands(origins, destinations, flows)
