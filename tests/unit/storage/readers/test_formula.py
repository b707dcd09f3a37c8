"""Lengths as a formula over one column: what it means, what is refused and where."""

from __future__ import annotations

import math

import numpy as np
import pytest

from storage.errors import InvalidRequest
from storage.readers.formula import parse_formula


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("1000 - score", "score", [998.0, 996.0, 992.0]),
        ("1/score", "score", [0.5, 0.25, 0.125]),
        ("2*score+1", "score", [5.0, 9.0, 17.0]),
        ("2*(score+1)", "score", [6.0, 10.0, 18.0]),
        ("10 - 4 - score", "score", [4.0, 2.0, -2.0]),
        ("8 / 2 / score", "score", [2.0, 1.0, 0.5]),
        ("-score", "score", [-2.0, -4.0, -8.0]),
        ("- -score", "score", [2.0, 4.0, 8.0]),
        ("3 - -score * 2", "score", [7.0, 11.0, 19.0]),
        ("score * score", "score", [4.0, 16.0, 64.0]),
        ("-log(p)", "p", [-math.log(2), -math.log(4), -math.log(8)]),
        ("sqrt( 2 * x )", "x", [2.0, math.sqrt(8), 4.0]),
        ("exp(x) * 0 + 1.5e1", "x", [15.0, 15.0, 15.0]),
        ('1 - "combined score"', "combined score", [-1.0, -3.0, -7.0]),
        ("$3 + .5", "3", [2.5, 4.5, 8.5]),
        ("log", "log", [2.0, 4.0, 8.0]),
        ("größe.km", "größe.km", [2.0, 4.0, 8.0]),
    ],
)
def test_values(text: str, column: str, expected: list[float]) -> None:
    formula = parse_formula(text)
    assert formula.column == column
    assert formula(np.array([2, 4, 8])).tolist() == pytest.approx(expected, rel=1e-15)
    assert formula(np.array([2, 4, 8])).dtype == np.float64


def test_it_agrees_with_python_on_random_formulas() -> None:
    rng = np.random.default_rng(7)
    values = np.array([0.5, 1.25, 3.0])

    def made(depth: int) -> str:
        if depth == 0 or rng.random() < 0.2:
            return "x" if rng.random() < 0.6 else str(round(float(rng.uniform(0.1, 9)), 2))
        sign = rng.choice(["+", "-", "*", "/"])
        return f"({made(depth - 1)} {sign} {made(depth - 1)})" if rng.random() < 0.5 else (
            f"{made(depth - 1)} {sign} {made(depth - 1)}"
        )  # fmt: skip

    for trial in range(300):
        text = made(3) + " + x"
        if len(text) > 200:
            continue
        with np.errstate(all="ignore"):
            expected = eval(text, {"__builtins__": {}}, {"x": values})
        assert np.array_equal(parse_formula(text)(values), expected, equal_nan=True), (trial, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "position 1: expected a number, a column or '.', found the end"),
        ("1000 -", "position 7: .*found the end"),
        ("1000 - * score", "position 8: .*found '[*] score'"),
        ("(score", r"position 7: expected '\)', found the end"),
        ("score)", r"position 6: expected an operator or the end, found '\)'"),
        ("score score", "position 7: expected an operator"),
        ("a + b", "position 5: expected the column 'a' again"),
        ("2 ** x", "position 4"),
        ("x; y", "position 2"),
        ("x[0]", "position 2"),
        ("__import__('os')", "position 11"),
        ("sqrt", None),
        ("open(x)", "position 5"),
        ("3 * 4", "names no column"),
        ("x * 1e-400", "'1e-400' is so small that float64 would take it for 0: write 0 if that is meant"),
        ("x - 1e400", "'1e400' is too large for float64"),
        ("x" * 201, "at most 200 characters"),
        ("(" * 21 + "x" + ")" * 21, "at most 20 nested"),
    ],
)
def test_what_is_malformed_is_refused_with_its_position(text: str, said: str | None) -> None:
    if said is None:
        assert parse_formula(text).column == text
        return
    with pytest.raises(InvalidRequest, match=said) as caught:
        parse_formula(text)
    assert caught.value.field == "length_of"


def test_two_hundred_signs_need_no_deep_stack() -> None:
    assert parse_formula("-" * 198 + "x")(np.array([3.0])).tolist() == [3.0]
