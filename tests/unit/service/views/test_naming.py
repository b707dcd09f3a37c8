"""Names that are offered for what somebody types."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.views.naming import like_names, similar_names

PLACES = np.array(
    sorted(["Harbour", "Harbour East", "Hall", "old harbour", "Zoo", "1 Main St"]), np.dtypes.StringDType()
)


def test_names_begin_with_what_was_typed_or_hold_it():
    assert like_names(PLACES, "Har", 8) == ["Harbour", "Harbour East", "old harbour"]
    assert like_names(PLACES, "har", 8) == ["Harbour", "Harbour East", "old harbour"]
    assert like_names(PLACES, "east", 8) == ["Harbour East"]
    assert like_names(PLACES, "Har", 1) == ["Harbour"]
    assert like_names(PLACES, "  ", 8) == like_names(PLACES, "xyz", 8) == like_names(PLACES[:0], "a", 8) == []


def test_a_misspelt_name_leads_to_those_like_it():
    assert similar_names(PLACES, "Harbor", 3)[0] == "Harbour"
    assert similar_names(PLACES, "Zou", 3) == ["Zoo"]
    assert similar_names(PLACES, "§", 3) == []
    assert similar_names(np.array([17, 170, 23]), "171", 3)[0] in ("17", "170")


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=40), st.integers(0, 3000))
@example({2**63 - 1, 9 * 10**18, 922, 0}, 922)
@example({2**63 - 1, 9 * 10**18, 90, 0}, 9)
@example({0, 10, 100}, 0)
def test_numbers_begin_with_the_digits_that_were_typed(numbers: set[int], typed: int):
    labels = np.array(sorted(numbers), np.int64)
    expected = [str(n) for n in sorted(numbers) if str(n).startswith(str(typed))]
    assert like_names(labels, str(typed), 100) == expected


@pytest.mark.parametrize("typed", ["-1", "1.5", "x", "٣", "9" * 30])
def test_what_is_no_number_is_like_no_number(typed: str):
    assert like_names(np.array([1, 2, 3]), typed, 8) == []
