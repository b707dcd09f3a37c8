"""Encoded polylines: the published example, and there and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.routing.polyline import decode, encode
from storage.errors import InvalidRequest

PLACES = st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), max_size=20)


def test_the_published_example() -> None:
    text = "_p~iF~ps|U_ulLnnqC_mqNvxq`@"
    assert decode(text) == [(-120.2, 38.5), (-120.95, 40.7), (-126.453, 43.252)]
    assert encode([38.5, 40.7, 43.252], [-120.2, -120.95, -126.453]) == text


@given(PLACES, st.sampled_from([5, 6]))
def test_there_and_back(places: list[tuple[float, float]], digits: int) -> None:
    text = encode([lat for _, lat in places], [lon for lon, _ in places], digits)
    assert decode(text, digits) == [pytest.approx(place, abs=0.51 * 10**-digits) for place in places]


@given(st.text(max_size=30))
def test_any_text_is_places_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert all(len(place) == 2 for place in decode(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [("_p~iF", "after a latitude"), ("_p~iF~", "cut off"), ("\x7f", "no meaning"), ("~" * 9, "no meaning")],
)
def test_damaged_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        decode(text)
