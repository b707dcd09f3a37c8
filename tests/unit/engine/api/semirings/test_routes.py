"""Values of paths."""

from __future__ import annotations

import math

from engine.api.semirings.routes import path_value, path_values


def test_values_of_beginnings_of_paths():
    assert path_values("max-min", [3, 5, 2]) == [math.inf, 3, 3, 2]
    assert path_values("min-max", [3, 5, 2]) == [-math.inf, 3, 5, 5]
    assert path_values("max-times", [0.5, 0.5]) == [1, 0.5, 0.25]
    assert path_values("lor-land", [7, 8]) == [1, 1, 1]
    assert path_value("min-max", []) == -math.inf
