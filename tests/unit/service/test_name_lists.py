"""Lists of names with commas: quotes keep what is between them, and everything else is as it was typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.name_lists import quote_name, split_names
from storage.errors import InvalidRequest


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (['A,"B, c",D'], ["A", "B, c", "D"]),
        (['"a ", a ,"b""c",  " x"'], ["a ", "a", 'b"c', " x"]),
        (['a"b, 5"'], ['a"b', '5"']),
        (["", " ,,", "x,"], ["x"]),
        (['" "', "y"], [" ", "y"]),
        (['a,"",b', '""'], ["a", "", "b", ""]),
        (["a\nb,c\r\nd", '"e\r,f"'], ["a\nb", "c\r\nd", "e\r,f"]),
    ],
)
def test_names(texts: list[str], names: list[str]):
    assert split_names(texts, "sources") == names


@pytest.mark.parametrize("texts", [['"a'], ['"a"b'], ['"a', 'b"']])
def test_quotes_that_do_not_match_are_refused(texts: list[str]):
    with pytest.raises(InvalidRequest, match="sources cannot be understood"):
        split_names(texts, "sources")


@pytest.mark.parametrize("text", ["", " , ,"])
def test_a_list_without_names_is_refused(text: str):
    with pytest.raises(InvalidRequest, match="sources names no vertex"):
        split_names([text], "sources")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_what_is_quoted_is_what_is_read(names: list[str]):
    """Names that differ in blanks only are different vertices."""
    assert split_names([",".join(map(quote_name, names))], "vertices") == names
