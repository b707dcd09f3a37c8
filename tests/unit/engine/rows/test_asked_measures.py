"""What can be asked of rows: names of columns, exact shares, and refusals that say what would work."""

from fractions import Fraction

import numpy as np
import pytest

from engine.rows.asked_measures import MEASURES, asked_measures
from storage.errors import InvalidRequest


def test_columns_have_a_fixed_order_and_short_names():
    asked = asked_measures(
        2,
        0.0,
        {
            "measures": ["sum", "reached"],
            "within": [30, 0.5, 30.0],
            "quantiles": [0.07],
            "nearest": 2,
            "opportunities": {"jobs": [1, 2]},
        },
    )
    assert asked.columns == (
        "reached",
        "sum",
        "within_0.5",
        "within_30",
        "quantile_0.07",
        "nearest_1",
        "nearest_1_distance",
        "nearest_2",
        "nearest_2_distance",
        "jobs_0.5",
        "jobs_30",
    )
    assert asked.vertex_columns == {"nearest_1", "nearest_2"}
    assert asked.quantiles == (Fraction(7, 100),)
    assert asked_measures(2, 0.0, {}).names == MEASURES


@pytest.mark.parametrize(
    ("request_", "smallest", "field", "said"),
    [
        ({"measures": ["closness"]}, 0, "measures", "closeness"),
        ({"measures": []}, 0, "measures", "no measure"),
        ({}, -2, "measures", "the least weight is -2.*reached,sum,mean,eccentricity,farthest"),
        ({"direction": "both"}, 0, "direction", "out, in"),
        ({"within": [-1]}, 0, "within", "at least 0, found -1"),
        ({"within": [float("nan")]}, 0, "within", "found nan"),
        ({"within": [float("inf")]}, 0, "within", "found inf"),
        ({"quantiles": [1.5]}, 0, "quantiles", "from 0 to 1, found 1.5"),
        ({"quantiles": [0.12345678901]}, 0, "quantiles", "9 decimals"),
        ({"nearest": -1}, 0, "nearest", "found -1"),
        ({"nearest": 10**6}, 0, "nearest", "10,000"),
        ({"opportunities": {"jobs": [1, 2]}}, 0, "within", "15,30"),
        ({"opportunities": {"jobs": [1, 2, 3]}, "within": [1]}, 0, "opportunities", r"2 numbers.*\(3,\)"),
        ({"opportunities": {"jobs": [1, np.nan]}, "within": [1]}, 0, "opportunities", "vertex index 1 are nan"),
        ({"opportunities": {"jobs": ["a", "b"]}, "within": [1]}, 0, "opportunities", "numbers"),
        ({"opportunities": {"j": np.ma.array([1, 2], mask=[0, 1])}, "within": [1]}, 0, "opportunities", "1 masked"),
        ({"opportunities": {"within": [1, 2]}, "within": [1]}, 0, "opportunities", "'within_1'"),
        ({"decay": "power"}, 0, "decay", "step, exponential, linear, logistic"),
        ({"decay": "linear", "decay_value": 2}, 0, "decay", "none were given"),
        ({"decay_value": 2}, 0, "decay_value", "no second parameter"),
        ({"decay": "exponential", "opportunities": {"j": [1, 2]}, "within": [0]}, 0, "within", "half-lives"),
        ({"decay": "linear", "opportunities": {"j": [1, 2]}, "within": [1]}, 0, "decay_value", "the width"),
        (
            {"decay": "logistic", "decay_value": 0, "opportunities": {"j": [1, 2]}, "within": [1]},
            0,
            "decay_value",
            "found 0",
        ),
        (
            {"decay": "exponential", "measures": [], "opportunities": {"j": [1, 2]}, "within": [1]},
            -1,
            "decay",
            "least weight is -1",
        ),
    ],
)
def test_refusals_name_the_field(request_, smallest, field, said):
    with pytest.raises(InvalidRequest, match=said) as refused:
        asked_measures(2, float(smallest), request_)
    assert refused.value.field == field


def test_sums_and_counts_may_be_taken_of_negative_distances():
    asked = asked_measures(2, -3.0, {"measures": ["sum", "eccentricity"], "within": [4]})
    assert asked.names == ("sum", "eccentricity")
