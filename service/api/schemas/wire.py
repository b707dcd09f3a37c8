"""Definitions that all schemas share: limits on lists, types of members, and the problem document."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from engine.model.algorithms import ALGORITHMS
from service.options import Numbers, Opportunities, Vertices, Words
from service.options import Size as SizeOrText
from storage.options import Option, declared

#: the most entries of one list of a request
MOST_LISTED: Final = 1_000_000
#: the most characters of a name
LONGEST_NAME: Final = 10_000
#: an object that has more unknown members than this is refused without a check of each member
_MOST_UNKNOWN: Final = 10
#: the most numbers or names in one option of a job that makes a table
MOST_NUMBERS: Final = 1000
#: the most columns of opportunities
MOST_COLUMNS: Final = 100
#: the most characters of the name of a column
_LONGEST_COLUMN: Final = 200
#: the most further columns of a graph; each takes time, and files of some formats are read once more for it
MOST_QUANTITIES: Final = 32
#: a vertex as the file names it
Label = StrictInt | StrictStr
#: a vertex in a request
Asked = StrictInt | Annotated[StrictStr, Field(max_length=LONGEST_NAME)]
#: the most characters of the name of a point
_LONGEST_POINT: Final = 1000
_Coordinate = Annotated[float, Field(strict=True, allow_inf_nan=False)]
#: how far points may be from their vertices: metres, or units of the plane
SnapLimit = Annotated[
    float | None,
    Field(ge=0, allow_inf_nan=False, description="Refuse points farther than this: metres, or units of the plane."),
]
#: vertices in a request; validation stops at the first error, because there may be a million entries
AskedList = Annotated[list[Asked], Field(fail_fast=True, min_length=1, max_length=MOST_LISTED)]
Size = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
#: names contain no NUL, because not every database accepts it
NAME_PATTERN = r"^[^\x00]*$"
#: a list of distances (option ``within``) or of shares (option ``quantiles``)
NumberList = Annotated[
    list[Annotated[float, Field(strict=True, allow_inf_nan=False)]], Field(fail_fast=True, max_length=MOST_NUMBERS)
]
OpportunityList = Annotated[
    list[Annotated[float, Field(strict=True, allow_inf_nan=False)]], Field(fail_fast=True, max_length=MOST_LISTED)
]
ColumnName = Annotated[StrictStr, Field(max_length=_LONGEST_COLUMN)]
ColumnList = Annotated[list[ColumnName], Field(fail_fast=True, min_length=1, max_length=MOST_NUMBERS)]
#: the shape of a matrix: its number of sources, its number of targets
Shape = Annotated[list[int], Field(min_length=2, max_length=2)]
State = Literal["accepted", "running", "successful", "failed", "dismissed"]
#: paths below a job that exist once it has a result
RESULT_LINKS = (
    "results", "summary", "histogram", "distance", "distances", "rows", "columns", "submatrix", "path", "paths",
    "nearest", "zarr",
)  # fmt: skip
#: results of a job that are tables
TableKind = Literal["measures", "near", "betweenness", "flows"]
TABLE_RESULTS: Final = frozenset(get_args(TableKind))
ResultKind = Literal["matrix", "prepared", TableKind]
#: paths below a job that exist once it has a table as its result
TABLE_LINKS = ("results", "summary", "table", "table/histogram", "zarr")


def links_of(result: str, *, also: bool = False) -> tuple[str, ...]:
    """Return the paths that exist below a job once it has its result.

    Args:
        result: the kind of the result.
        also: whether the job sums quantities along the shortest paths.
    """
    if result in TABLE_RESULTS:
        return TABLE_LINKS
    return (*RESULT_LINKS, *(["prepared"] if result == "prepared" else []), *(["also"] if also else []))


class Wire(BaseModel):
    """The base of all schemas.  Unknown members are refused, so that a misspelt option is not silently ignored."""

    model_config = ConfigDict(extra="forbid")


class Question(Wire):
    """The base of schemas of request bodies: it bounds the number of validation errors, whatever the client sends."""

    @model_validator(mode="before")
    @classmethod
    def _few_members(cls, members: Any) -> Any:
        if isinstance(members, dict) and len(members) > len(cls.model_fields) + _MOST_UNKNOWN:
            message = "{given} members are given, and there are only {known}"
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("too_many_members", message, {"given": len(members), "known": known})
        return members


def members_of(options: type) -> dict[str, Any]:
    """Return a pydantic field for each option of a class, as ``pydantic.create_model`` takes them."""
    return {name: _member(name, kind, option) for name, (kind, option) in declared(options).items()}


def _member(name: str, kind: Any, option: Option) -> tuple[Any, Any]:
    """Return the type and the pydantic field of an option.

    In requests, sizes are numbers of bytes, vertices are lists, and strings do not pass for numbers.
    """
    limits: dict[str, Any] = {"ge": option.least, "le": option.most, "max_length": option.longest}
    if kind == Vertices:
        kind = AskedPlaces | None
    elif kind is Opportunities:
        kind = (DemandColumns if name == "demands" else OpportunityColumns) | TableId | None
    elif kind in (Numbers, Words):
        kind = (NumberList if kind == Numbers else ColumnList) | None
    elif kind in (SizeOrText, int | None):
        kind, limits = Size | None, {}
    elif name == "algorithm":
        kind = Literal[("auto", *ALGORITHMS)]
    elif kind in (int, float | None):
        limits |= {"strict": True} | ({} if kind is int else {"allow_inf_nan": False})
    given = {limit: value for limit, value in limits.items() if value is not None}
    return kind, Field(option.default, description=option.in_api or option.help, **given)


#: the id of an uploaded table
TableId = Annotated[StrictStr, Field(max_length=32, pattern=r"^[0-9a-f]{32}$")]


class PointAsked(Question):
    """A point in place of a vertex: it means the vertex nearest to it; ``lon`` and ``lat``, or ``x`` and ``y``."""

    id: Asked | None = Field(None, description="Of the points of a job: all have one, or none.")
    name: str | None = Field(None, max_length=_LONGEST_POINT, pattern=NAME_PATTERN)
    lon: _Coordinate | None = None
    lat: _Coordinate | None = None
    x: _Coordinate | None = Field(None, description="In the system of the graph.")
    y: _Coordinate | None = None

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "home", "lon": 24.9405, "lat": 60.1697}]})

    @model_validator(mode="after")
    def _two_numbers(self) -> PointAsked:
        given = [name for name in ("lon", "lat", "x", "y") if getattr(self, name) is not None]
        if given not in (["lon", "lat"], ["x", "y"]):
            message = "a point has lon and lat, or x and y; this one has {given}"
            raise PydanticCustomError("no_point", message, {"given": ", ".join(given) or "neither"})
        return self

    def members(self) -> dict[str, Any]:
        """Return the members that were given."""
        return self.model_dump(exclude_none=True)


#: a vertex or a point in a request, and lists of them
AskedPlace = Asked | PointAsked
AskedPlaces = Annotated[list[AskedPlace], Field(fail_fast=True, min_length=1, max_length=MOST_LISTED)]


def plain(places: Sequence[Any]) -> list[Any]:
    """Return a copy of a list of vertices and points in which each point is a dict of its members."""
    return [place.members() if isinstance(place, PointAsked) else place for place in places]


class OpportunityColumns(Question):
    """Numbers by vertex: ``columns`` has as many numbers in each column as there are ``vertices``."""

    vertices: AskedList
    columns: dict[ColumnName, OpportunityList] = Field(min_length=1, max_length=MOST_COLUMNS)

    model_config = ConfigDict(json_schema_extra={"examples": [{"vertices": [1, 17], "columns": {"jobs": [1200, 40]}}]})

    @model_validator(mode="before")
    @classmethod
    def _few_columns(cls, members: Any) -> Any:
        columns = members.get("columns") if isinstance(members, dict) else None
        if isinstance(columns, dict) and len(columns) > MOST_COLUMNS:
            message = "{given} columns are given, at most {most} are read"
            raise PydanticCustomError("too_many_columns", message, {"given": len(columns), "most": MOST_COLUMNS})
        return members


class DemandColumns(Question):
    """Demands in three lists of equal length: ``flows[i]`` is to go from ``origins[i]`` to ``destinations[i]``."""

    origins: AskedList
    destinations: AskedList
    flows: OpportunityList = Field(min_length=1)

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"origins": [1, 17], "destinations": [17, 3], "flows": [120, 4.5]}]}
    )


class ProblemDocument(Wire):
    """An RFC 9457 problem document; ``code`` is stable, ``details`` depends on it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]
    instance: str | None = None
    request_id: str | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:apsp:problem:limit-exceeded",
                    "title": "A limit is exceeded",
                    "status": 413,
                    "detail": "12000000 entries are asked for, at most 4000000 go in one answer",
                    "code": "limit-exceeded",
                    "details": {"limit": 4000000, "requested": 12000000, "setting": "APSP_MAX_CELLS"},
                    "instance": "/v1/jobs/01a1fd52-422a-70e5-8284-8de96e7ad0e1/rows",
                    "request_id": "5f0c1f6c9d1b4a55",
                }
            ]
        }
    )


def moment(seconds: float | None) -> Any:
    """Return the UTC time of ``seconds`` since 1970, as a schema takes it; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
