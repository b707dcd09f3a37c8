"""Options of a job as they are sent: numbers of NumPy are numbers, and what JSON cannot say is refused by its name."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from service.client import flows
from service.client.asking import Patience
from service.client.names import Names
from service.client.tables import sent_table
from storage.errors import InvalidRequest


def sent(**options: Any) -> Any:
    """The body of the request that queues a job."""
    return next(flows.submit("g", Names(), options, Patience())).request.json  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.int32])
@pytest.mark.parametrize("name", ["max_hops", "threads", "memory", "priority", "nearest", "cutoff"])
def test_numbers_of_numpy_are_sent_as_numbers(name: str, kind: Any):
    body = sent(**{name: kind(3)})
    assert json.loads(json.dumps(body)) == {"graph": "g", name: 3}
    assert type(body[name]) is int


def test_other_numbers_and_flags_of_numpy():
    assert sent(cutoff=np.float32(2.5), fresh=np.True_, within=np.array([1, 2.5]), sources=np.array([3, 1])) == {
        "graph": "g", "cutoff": 2.5, "fresh": True, "within": [1.0, 2.5], "sources": [3, 1],
    }  # fmt: skip


@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf, np.float64("nan"), object(), np.float64, 1j, b"1"])
@pytest.mark.parametrize("name", ["cutoff", "max_hops", "dtype"])
def test_what_json_cannot_say_is_refused_by_its_name(name: str, value: Any):
    with pytest.raises(InvalidRequest, match=f"{name} cannot be sent") as caught:
        sent(**{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("value", [True, [True], [1, False]])
@pytest.mark.parametrize("name", ["within", "quantiles", "measures"])
def test_flags_are_no_numbers_and_no_names(name: str, value: Any):
    with pytest.raises(InvalidRequest, match=f"{name} takes"):
        sent(**{name: value})


def inline(field: str, given: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        next(sent_table(field, given, Names(), Patience()))
    return json.loads(json.dumps(ended.value.value))


@pytest.mark.parametrize("form", [list, np.array, lambda values: list(np.array(values)), tuple])
def test_columns_in_the_body_may_be_arrays(form: Any):
    found = inline("opportunities", {"vertices": form([0, 1]), "columns": {"jobs": form([1, 2])}})
    assert found == {"vertices": [0, 1], "columns": {"jobs": [1, 2]}}
    found = inline("demands", {"origins": form([0]), "destinations": form([2]), "flows": form([1.5])})
    assert found == {"origins": [0], "destinations": [2], "flows": [1.5]}
    with pytest.raises(InvalidRequest, match="masked"):
        inline("opportunities", {"vertices": [0, 1], "columns": {"jobs": np.ma.array([1, 2], mask=[0, 1])}})
