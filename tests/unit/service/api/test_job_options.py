"""Every member of a job's request with values of every JSON type: none is read as another value than it was sent as."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from service.api.schemas.jobs import JobRequest

VALUES: list[Any] = [
    True, False, 0, 1, 2, -1, 10**30, 1.5, 2.0, -0.0, 1e300, math.inf, -math.inf, math.nan, "", "2", "1.5", "x", "no",
    "true", "nan", "\ud800", [], [1], [True], ["1"], [1.5], [None], [[1]], {}, {"a": 1}, {"vertices": [1]},
]  # fmt: skip
#: What means a flag, in words or as a number.
FLAGS = {0: False, 1: True, "no": False, "true": True}


def same(sent: Any, read: Any) -> bool:
    """Return whether a value was read as it was sent: whole numbers may become floats."""
    if isinstance(read, BaseModel):
        return isinstance(sent, dict)
    if isinstance(sent, bool) or isinstance(read, bool):
        return sent is read or (isinstance(read, bool) and not isinstance(sent, bool) and FLAGS.get(sent) is read)
    if isinstance(sent, list):
        return isinstance(read, list) and len(read) == len(sent) and all(map(same, sent, read))
    if isinstance(sent, int | float) and isinstance(read, int | float):
        return float(sent) == float(read)
    return type(sent) is type(read) and sent == read


@pytest.mark.parametrize("name", sorted(set(JobRequest.model_fields) - {"graph"}))
def test_a_member_is_read_as_it_was_sent_or_refused(name: str) -> None:
    taken = []
    for value in VALUES:
        body = json.dumps({"graph": "g", name: value})
        try:
            read = getattr(JobRequest.model_validate_json(body), name)
        except ValidationError:
            continue
        assert same(value, read), f"{name}: {value!r} was read as {read!r}"
        taken.append(value)
    assert len(taken) < len(VALUES)
    assert not any(isinstance(value, float) and math.isnan(value) for value in taken)


def test_a_member_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValidationError):
        JobRequest.model_validate({"graph": "g", "max_hop": 3})
