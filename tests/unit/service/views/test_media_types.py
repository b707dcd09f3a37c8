from __future__ import annotations

import pytest

from service.api.fault import NotAcceptable
from service.views.media_types import choose_format, unit_headers


@pytest.mark.parametrize(
    ("asked", "accept", "expected"),
    [
        (None, None, "json"),
        (None, "*/*", "json"),
        (None, "text/*", "csv"),
        (None, "text/csv;q=0.5, application/x-npy", "npy"),
        (None, "application/vnd.apache.parquet", "parquet"),
        (None, "application/json;q=0, application/*;q=0.1", "npy"),
        (None, "text/html, application/vnd.apache.arrow.stream;q=0.9, */*;q=0.1", "arrow"),
        (None, "TEXT/CSV ; q=1.0", "csv"),
        ("parquet", "text/csv", "parquet"),
    ],
)
def test_choice(asked: str | None, accept: str | None, expected: str):
    assert choose_format(asked, accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "*/*;q=0", "application/json;q=none", ""])
def test_what_leaves_nothing_is_refused(accept: str):
    if not accept:  # an empty header field says nothing
        assert choose_format(None, accept) == "json"
        return
    with pytest.raises(NotAcceptable, match="text/csv"):
        choose_format(None, accept)


@pytest.mark.parametrize(
    ("unit", "said"),
    [("min", "min"), ("km/h", "km/h"), ("per cent %", "per cent %25"), ("Å", "%C3%85"), ("a\r\nb", "a%0D%0Ab")],
)
def test_a_header_names_the_unit(unit: str, said: str):
    assert unit_headers({"distance_unit": unit}) == {"Distance-Unit": said}
    assert unit_headers({"value_unit": unit}) == {"Value-Unit": said}
    assert unit_headers({}) == {}
