"""Schemas of questions about a result and of their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from service.api.schemas.wire import (
    MOST_LISTED,
    AskedPlace,
    AskedPlaces,
    Label,
    PointAsked,
    Question,
    ResultKind,
    Shape,
    SnapLimit,
    TableKind,
    Wire,
    links_of,
)
from storage.semirings import SemiringName

#: the semiring of the values that a question asks for
AskedSemiring = Annotated[
    SemiringName | None,
    Field(
        description="That of the job; min-plus (distances) if left out: then jobs of other semirings answer 409, so "
        "that nobody takes their values for distances."
    ),
]
#: the semiring of the values in an answer; answers with distances (min-plus) have no such member
SaidSemiring = Annotated[SemiringName | None, Field(description="Of what the value is; left out of distances.")]


class SnappedPoint(Wire):
    """A point of a request, and the vertex nearest to it, which is used in its place."""

    place: int | None = Field(None, description="Of a list: where the point stands in it, from 0.")
    id: Label | None = None
    name: str | None = None
    lon: float | None = None
    lat: float | None = None
    x: float | None = None
    y: float | None = None
    vertex: Label
    snap: float = Field(description="How far the vertex is: metres along a great circle, or units of the plane.")
    far: bool = Field(description="Whether that is more than 1,000 m.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"lon": 24.9405, "lat": 60.1697, "vertex": 17, "snap": 27.7, "far": False}],
        }
    )


class FromPoint(Wire):
    """The member of an answer about one source that describes the point, if the request gave the source as a point."""

    source_point: SnappedPoint | None = None


class BetweenPoints(FromPoint):
    """The members of an answer about a source and a target that describe the points, if the request gave points."""

    target_point: SnappedPoint | None = None


class ListedPoints(Wire):
    """The members of an answer about lists of vertices that describe the points in these lists."""

    source_points: list[SnappedPoint] | None = None
    target_points: list[SnappedPoint] | None = None


class PointsRequest(Question):
    """Points for which the nearest vertices are wanted."""

    points: list[PointAsked] = Field(fail_fast=True, min_length=1, max_length=MOST_LISTED)
    snap_limit: Annotated[SnapLimit, Field(strict=True)] = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"points": [{"name": "home", "lon": 24.9405, "lat": 60.1697}]}]}
    )


class PointsTaken(Wire):
    """The points in the order of the request, each with the vertex nearest to it."""

    points: list[SnappedPoint]


class Distance(BetweenPoints):
    """One distance; null where there is no path.

    In the semirings max-min and min-max the value from a vertex to itself is infinite: ``distance`` is null then, but
    ``reachable`` is true.
    """

    source: Label
    target: Label
    reachable: bool
    distance: int | float | None
    semiring: SaidSemiring = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source": 1, "target": 17, "reachable": True, "distance": 4711}]}
    )


class PairsRequest(Question):
    """Pairs of vertices, source first."""

    pairs: list[tuple[AskedPlace, AskedPlace]] = Field(
        fail_fast=True, min_length=1, max_length=MOST_LISTED, examples=[[[1, 17], [17, 1]]]
    )
    snap_limit: Annotated[SnapLimit, Field(strict=True)] = None
    semiring: AskedSemiring = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"pairs": [[1, 17], [17, 1]]},
                {"pairs": [[1, {"lon": 24.9405, "lat": 60.1697}]], "snap_limit": 500},
            ]
        }
    )


class Distances(ListedPoints):
    """Distances in the order of the pairs; null where there is no path."""

    distances: list[int | float | None] = Field(examples=[[4711, None]])


class PathDocument(BetweenPoints):
    """One shortest path; ``weights[i]`` belongs to the arc from ``vertices[i]`` to ``vertices[i + 1]``."""

    source: Label
    target: Label
    reachable: bool
    length: int | float | None
    vertices: list[Label]
    weights: list[int | float]
    semiring: SaidSemiring = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"source": 1, "target": 3, "reachable": True, "length": 7, "vertices": [1, 2, 3], "weights": [3, 4]}
            ]
        }
    )


class SumsDocument(BetweenPoints):
    """A distance, and the sums of quantities along its path, by their names; null where there is no path."""

    source: Label
    target: Label
    reachable: bool
    distance: int | float | None
    also: dict[str, int | float | None]

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"source": 1, "target": 3, "reachable": True, "distance": 8, "also": {"metres": 6500, "toll": 2.5}}
            ]
        }
    )


class Paths(ListedPoints):
    """Paths in the order of the pairs."""

    paths: list[PathDocument]


class SubmatrixRequest(Question):
    """Sources and targets, each a vertex as the file names it, or a point; null for all."""

    sources: AskedPlaces | None = Field(None, examples=[[1, 17]])
    targets: AskedPlaces | None = Field(None, examples=[[17, 40]])
    snap_limit: Annotated[SnapLimit, Field(strict=True)] = None
    semiring: AskedSemiring = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"sources": [1, 17], "targets": [17, 40]},
                {"sources": [1, 17], "targets": [{"name": "clinic", "lon": 24.952, "lat": 60.169}], "snap_limit": 5000},
            ]
        }
    )


class Nearest(FromPoint):
    """The vertices nearest to a source, or in another semiring those with the best values; ``distances[i]`` belongs to
    ``targets[i]``.
    """

    source: Label
    targets: list[Label]
    distances: list[int | float]
    semiring: SaidSemiring = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"source": 1, "targets": [2, 17], "distances": [3, 4711]}]}
    )


class Histogram(FromPoint):
    """Finite distances, the diagonal left out; bin i holds those from ``edges[i]`` to below ``edges[i + 1]``."""

    edges: list[int | float]
    counts: list[int]
    below_zero: int = Field(description="How many are negative; with a source they are also in the bins.")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"edges": [0, 2, 4], "counts": [10, 3], "below_zero": 0}]}
    )


class SampleDocument(Wire):
    """Entries of evenly spaced rows and columns; ``distances[i][j]`` is that of ``sources[i]`` and ``targets[j]``."""

    rows: list[int] = Field(description="Positions in the matrix, from 0.")
    columns: list[int] = Field(description="Positions in the matrix, from 0.")
    sources: list[Label]
    targets: list[Label]
    distances: list[list[int | float | None]] = Field(
        description="A list for each source; null where there is no path."
    )
    complete: bool = Field(description="Whether these are all rows and columns that were asked for.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "rows": [1], "columns": [0, 2], "sources": [17], "targets": [1, 40], "distances": [[3, None]],
                    "complete": False,
                }
            ]
        }
    )  # fmt: skip


class Eccentricities(Wire):
    """The largest finite distance from each of some sources to another target; null where there is none."""

    sources: list[Label]
    eccentricities: list[int | float | None]
    reached: list[int] = Field(description="How many targets each source reaches, itself counted where it is one.")
    central: list[bool] = Field(
        description="Whether a source reaches nine tenths of what any of them reaches: only those compare as centres."
    )
    of: int = Field(description="Sources of the matrix.")
    complete: bool = Field(description="Whether these are all of them.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sources": [1, 17], "eccentricities": [4711, None], "reached": [2, 1], "central": [True, False],
                    "of": 2, "complete": True,
                }
            ]
        }
    )  # fmt: skip


class Manifest(Wire):
    """What a sealed result is, and where to read it."""

    job: str
    result: Literal["matrix", "prepared"] = Field(description="Whether distances are stored, or computed when asked.")
    shape: Shape = Field(description="Sources, targets.")
    dtype: str
    unreachable: int | float | str | None = Field(description="The stored value of *no path*.")
    unit: str | None
    weight_column: str | None = Field(description="The column of the file that the weights are; null if not known.")
    directed: bool
    algorithm: str | None
    semiring: SemiringName = Field(description="What the values are: min-plus for distances.")
    max_hops: int | None
    cutoff: float | None
    graph: str | None = Field(description="Digest of the graph.")
    sources: str | None = Field(description="all or subset.")
    targets: str | None = Field(description="all or subset.")
    compression: str | None
    software: str | None
    also: dict[str, str] = Field(
        description="Quantities summed along the paths, and the types of their arrays, also/NAME: uint16, int32 or "
        "float64. The attribute unreachable of each array is its value for *no path*."
    )
    tiles: dict[str, list[int]] = Field(description="Shape of a tile, tiles down and across.")
    bytes: int
    digest: str = Field(description="Of the seal, which names size and checksum of every file.")
    links: dict[str, str]

    @staticmethod
    def links_of(job_id: str, result: str = "matrix", *, also: bool = False) -> dict[str, str]:
        """Return the links to all that can be read of a result, by name; for a prepared result also to its files."""
        base = f"/v1/jobs/{job_id}"
        return {"job": base, **{name: f"{base}/{name}" for name in links_of(result, also=also)}}


class ColumnDocument(Wire):
    """A column of a table."""

    name: str
    type: Literal["integer", "number", "text"]


class TableManifest(Wire):
    """What a sealed table is, and where to read it."""

    job: str
    result: TableKind
    shape: Shape = Field(description="Sources, targets: of the matrix that was not made.")
    rows: int
    columns: list[ColumnDocument] = Field(description="The first names vertices.")
    dtype: str = Field(description="Of the distances from which the table was made.")
    unit: str | None
    directed: bool
    algorithm: str | None
    max_hops: int | None
    cutoff: float | None
    graph: str | None = Field(description="Digest of the graph.")
    asked: dict[str, Any] = Field(description="The options of the job of tables, without opportunities and demands.")
    software: str | None
    bytes: int
    digest: str = Field(description="Of the seal, which names size and checksum of every file.")
    links: dict[str, str]


class TablePage(Wire):
    """Rows of a table; ``rows[i][j]`` belongs to ``columns[j]``, and is null where row i has no value in
    that column.
    """

    columns: list[str]
    rows: list[list[int | float | str | None]]
    total: int = Field(description="Rows of the whole table.")
    next: str | None = Field(description="Where the following rows are; null behind the last one.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "columns": ["vertex", "within_15"],
                    "rows": [[17, 2], [40, None]],
                    "total": 3,
                    "next": "/v1/jobs/0197a6b2/table?limit=2&cursor=eyJuIjoyfQ",
                }
            ]
        }
    )


class ColumnHistogram(Wire):
    """The numbers of a column; bin i holds those from ``edges[i]`` to below ``edges[i + 1]``, the last bin also
    ``edges[-1]``.
    """

    column: str
    edges: list[float]
    counts: list[int]
    missing: int = Field(description="Rows without a number.")


class SummaryDocument(Wire):
    """Facts about a solved matrix.

    For a prepared result these are only the number of pairs, unless the request asks to count all rows.  For a table,
    they include the number of rows and the names of columns.
    """

    job: str
    result: ResultKind = Field(description="As the job asked.")
    shape: Shape
    dtype: str
    directed: bool
    unit: str
    weight_column: str | None = Field(description="The column of the file that the weights are; null if not known.")
    summary: dict[str, Any]
