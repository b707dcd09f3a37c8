"""Which texts are numbers."""

from __future__ import annotations

import math

import pytest

from storage.number_texts import decimal_number, is_digits, looks_like_number, whole_number

#: what ``int``, ``float`` or pydantic takes for a number
STRANGE = ("1_0", " 5", "5 ", "5\n", "\xa05", "٣", "３", "1٣", "²", "nan", "NaN", "1e999", "-1e999", "._1", "1_0.5")
WRONG = (*STRANGE, "", " ", "-", "+", ".", "e5", "1e", "1.5.2", "0x10", "1,5", "--1", "+-1", "infinite", "ınf")


@pytest.mark.parametrize("text", ["0", "7", "-3", "+3", "007", "-0", "9" * 400])
def test_whole_numbers(text: str) -> None:
    assert whole_number(text) == int(text)


@pytest.mark.parametrize("text", [*WRONG, "inf", "3.0", "1e3", "9" * 401, "9" * 5000])
def test_texts_that_are_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no whole number"):
        whole_number(text)
    assert not is_digits(text)


@pytest.mark.parametrize("text", ["0", "-3", "+3", "007", "3.0", "2.5", ".5", "5.", "1e3", "1E-300", "0E-400", "-0.0"])
def test_numbers(text: str) -> None:
    assert decimal_number(text) == decimal_number(text, infinite=True) == float(text)


@pytest.mark.parametrize("text", WRONG)
def test_texts_that_are_no_number(text: str) -> None:
    for infinite in (False, True):
        with pytest.raises(ValueError, match=r"is no number|is too large"):
            decimal_number(text, infinite=infinite)


@pytest.mark.parametrize("text", ["1e-400", "-1E-0324", "+.5e-330", f"0.{'0' * 400}1"])
def test_numbers_that_float64_takes_for_0(text: str) -> None:
    for infinite in (False, True):
        with pytest.raises(ValueError, match="is so small that float64 would take it for 0: write 0 if that is meant"):
            decimal_number(text, infinite=infinite)


@pytest.mark.parametrize("text", ["inf", "-inf", "+inf", "INF", "infinity", "-Infinity"])
def test_infinity_is_a_number_where_it_is_asked_for(text: str) -> None:
    assert math.isinf(decimal_number(text, infinite=True))
    assert decimal_number(text, infinite=True) == float(text)
    with pytest.raises(ValueError, match="is no number"):
        decimal_number(text)


def test_digits_have_no_sign() -> None:
    assert is_digits("0")
    assert is_digits("007")
    assert not is_digits("+7")
    assert not is_digits("-7")


def test_a_text_like_a_number_is_no_header() -> None:
    assert all(looks_like_number(text) for text in ("1", "1_0", "nan", "inf", " 5", "٣", "1e999"))
    assert not any(looks_like_number(text) for text in ("", "km", "1 2", "1,5", "-"))
