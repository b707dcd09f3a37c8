"""Measures of rows of distances: their names, the arguments of a request, and the names of their columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from storage.arguments import check_names, check_number, check_whole, shown, unmasked
from storage.errors import InvalidRequest

Floats = npt.NDArray[np.float64]

#: The measures of a row that take no further argument, in the order of their columns.
MEASURES: Final = (
    "reached",
    "sum",
    "mean",
    "closeness",
    "closeness_plain",
    "harmonic",
    "eccentricity",
    "farthest",
)
#: Measures that have no meaning where distances may be negative.
_NOT_NEGATIVE: Final = ("closeness", "closeness_plain", "harmonic")
DIRECTIONS: Final = ("out", "in")
DECAYS: Final = ("step", "exponential", "linear", "logistic")
#: The largest denominator of a quantile; its product with any number of vertices fits int64.
_DENOMINATOR: Final = 10**9
#: Bytes of an entry of a table.
_ENTRY: Final = 8
#: The largest number of nearest vertices that may be asked for in each row.
MOST_NEAREST: Final = 10_000


class MeasureRequest(TypedDict, total=False):
    """The arguments of ``measure`` in addition to the graph and the options of a solve.

    Attributes:
        measures: names out of ``MEASURES``; all of them if left out.
        direction: ``out``: a row for each source, over the distances from it to the targets; ``in``: a row for each
            target, over the distances from the sources to it.
        within: distances; each, such as 15, fills a column such as ``within_15`` with the number of vertices at most
            that far away.
        quantiles: shares from 0 to 1; each, such as 0.5, fills a column such as ``quantile_0.5``.
        nearest: the number of nearest vertices that each row has, with their distances.
        opportunities: by name, such as ``jobs``, a number for each vertex, shape (n,); each name fills a column
            ``jobs_15`` for each distance in ``within``.
        decay: the function that says how much an opportunity at a distance counts, one of ``DECAYS``.
        decay_value: the second parameter of a linear or a logistic decay.
    """

    measures: Sequence[str]
    direction: Literal["out", "in"]
    within: Sequence[float]
    quantiles: Sequence[float]
    nearest: int
    opportunities: Mapping[str, npt.ArrayLike]
    decay: Literal["step", "exponential", "linear", "logistic"]
    decay_value: float | None


@dataclass(frozen=True, eq=False)
class AskedMeasures:
    """The measures wanted of each row, in a form that kernels use; :func:`asked_measures` makes and checks it.

    Attributes:
        names: measures, in the order of ``MEASURES``.
        direction: ``out`` or ``in``.
        within: distances, ascending.
        quantiles: shares as exact fractions, ascending.
        nearest: number of nearest vertices.
        opportunities: float64, shape (n,), by name.
        decay: one of ``DECAYS``.
        decay_value: its second parameter; 0 where it has none.
    """

    names: tuple[str, ...] = MEASURES
    direction: str = "out"
    within: tuple[float, ...] = ()
    quantiles: tuple[Fraction, ...] = ()
    nearest: int = 0
    opportunities: Mapping[str, Floats] = field(default_factory=dict)
    decay: str = "step"
    decay_value: float = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
        near = [name for k in range(1, self.nearest + 1) for name in (f"nearest_{k}", f"nearest_{k}_distance")]
        return (
            *self.names,
            *(f"within_{written(limit)}" for limit in self.within),
            *(f"quantile_{written(float(share))}" for share in self.quantiles),
            *near,
            *(f"{name}_{written(limit)}" for name in self.opportunities for limit in self.within),
        )

    @property
    def vertex_columns(self) -> frozenset[str]:
        """The names of the columns that hold vertices."""
        return frozenset({"farthest"} & {*self.names}) | {f"nearest_{k}" for k in range(1, self.nearest + 1)}


def written(number: float) -> str:
    """Return a number as it stands in names of columns: ``15`` for 15.0, else the shortest digits that give the same
    float.
    """
    return str(int(number)) if number == int(number) else repr(number)


def table_bytes(rows: int, columns: Sequence[str]) -> int:
    """Return the bytes of a table in memory.

    Args:
        rows: number of rows.
        columns: the names of the columns, without the first column, which holds the vertices.
    """
    return rows * (1 + len(columns)) * _ENTRY


def asked_measures(n: int, smallest: float, request: MeasureRequest) -> AskedMeasures:
    """Check a request, and fill in defaults.

    Args:
        n: the number of vertices of the graph.
        smallest: the smallest weight; 0 where there is no arc.
        request: what is asked.

    Returns:
        The measures, in the order of their columns.

    Raises:
        InvalidRequest: a name is unknown, a number is out of its range, two columns would have one name, or a measure
            has no meaning for negative distances.
        TypeError: the request has a key that :class:`MeasureRequest` does not have.
    """
    if unknown := request.keys() - MeasureRequest.__annotations__.keys():
        raise TypeError(
            f"there is no measure option {min(unknown)!r}; known are {', '.join(MeasureRequest.__annotations__)}"
        )
    decay, direction = request.get("decay", "step"), request.get("direction", "out")
    _check_choice("direction", direction, DIRECTIONS)
    _check_choice("decay", decay, DECAYS)
    within = _ascending("within", request.get("within", ()), math.inf)
    nearest = request.get("nearest", 0)
    nearest = check_whole("nearest", nearest, 0, MOST_NEAREST)
    quantiles = tuple(_share(share) for share in _ascending("quantiles", request.get("quantiles", ()), 1))
    given = request.get("opportunities") or {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidRequest(f"opportunities must be columns by name, found {shown(given)}", field="opportunities")
    opportunities = {name: _numbers(name, values, n) for name, values in given.items()}
    if opportunities and not within:
        raise InvalidRequest(
            "opportunities are summed within distances, and none was given: say which, such as within 15,30",
            field="within",
        )
    asked = AskedMeasures(
        _names(request.get("measures"), smallest),
        direction,
        within,
        quantiles,
        nearest,
        opportunities,
        decay,
        _decay_value(decay, request.get("decay_value"), given, within),
    )
    _check_columns(asked, smallest)
    return asked


def _check_choice(field_name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidRequest(f"{field_name} must be one of {', '.join(choices)}, found {value!r}", field=field_name)


def _names(wanted: Sequence[str] | None, smallest: float) -> tuple[str, ...]:
    """Return the names in the order of ``MEASURES``."""
    for name in () if wanted is None else check_names("measures", wanted):
        _check_choice("measures", name, MEASURES)
    names = tuple(name for name in MEASURES if wanted is None or name in wanted)
    wrong = [name for name in names if name in _NOT_NEGATIVE] if smallest < 0 else []
    if wrong:
        left = ",".join(name for name in names if name not in wrong) or "reached,sum,mean,eccentricity"
        raise InvalidRequest(
            f"{', '.join(wrong)}: defined for distances of at least 0, and the least weight is {smallest:g}; "
            f"ask for measures {left}",
            field="measures",
        )
    return names


def _ascending(field_name: str, values: Sequence[float], most: float) -> tuple[float, ...]:
    """Return numbers from 0 to ``most``, ascending, none twice."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{field_name} must be a list of numbers, found {shown(values)}", field=field_name)
    numbers = [check_number(field_name, value) for value in values]
    for value in numbers:
        if not (0 <= value <= most) or math.isinf(value):
            span = "of at least 0" if math.isinf(most) else f"from 0 to {most:g}"
            raise InvalidRequest(f"{field_name} must be numbers {span}, found {value}", field=field_name)
    return tuple(sorted({float(value) for value in numbers}))


def _share(value: float) -> Fraction:
    """Return a share as the exact fraction of its decimal digits: 0.07 is 7/100."""
    share = Fraction(repr(value))
    if share.denominator > _DENOMINATOR:
        raise InvalidRequest(f"quantiles have at most 9 decimals, found {value}", field="quantiles")
    return share


def _numbers(name: str, values: npt.ArrayLike, n: int) -> Floats:
    array = unmasked("opportunities", values)
    if array.shape != (n,) or array.dtype.kind not in "biuf":
        raise InvalidRequest(
            f"opportunities {name!r} must be {n:,} numbers, one a vertex in the order of the labels; found an array "
            f"of {array.dtype} of shape {array.shape}",
            field="opportunities",
        )
    numbers = array.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        message = f"opportunities {name!r} of vertex index {wrong[0]} are {numbers[wrong[0]]}, which is no number"
        raise InvalidRequest(message, field="opportunities")
    return numbers


def _decay_value(decay: str, value: float | None, given: Mapping[str, object], within: Sequence[float]) -> float:
    if decay != "step" and not given:
        raise InvalidRequest(f"decay {decay} weighs opportunities, and none were given", field="decay")
    if decay == "exponential" and 0 in within:
        raise InvalidRequest("within are half-lives of an exponential decay, and 0 is none", field="within")
    if decay in ("step", "exponential"):
        if value is not None:
            raise InvalidRequest(f"decay {decay} has no second parameter, found {value}", field="decay_value")
        return 0.0
    if value is not None:
        value = check_number("decay_value", value)
    what = "the width of the slope" if decay == "linear" else "the standard deviation"
    if value is None or not 0 < value < math.inf:
        said = "none was given" if value is None else f"found {value}"
        message = f"decay {decay} needs {what} as decay value, a distance above 0; {said}"
        raise InvalidRequest(message, field="decay_value")
    return float(value)


def _check_columns(asked: AskedMeasures, smallest: float) -> None:
    if asked.decay != "step" and smallest < 0:
        message = f"decay {asked.decay} is defined for distances of at least 0, and the least weight is {smallest:g}"
        raise InvalidRequest(message, field="decay")
    columns = asked.columns
    if not columns:
        raise InvalidRequest(f"no measure is asked for; there are {', '.join(MEASURES)}", field="measures")
    seen = {"vertex"}
    for name in columns:
        if name in seen:
            message = f"two columns would be called {name!r}; rename the opportunities"
            raise InvalidRequest(message, field="opportunities")
        seen.add(name)
