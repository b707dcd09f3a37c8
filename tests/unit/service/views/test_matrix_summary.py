"""What a radius was compared over, in words: new summaries and old ones."""

import pytest

from service.cli.commands.showing import summary_lines
from service.views.matrix_summary import compared

SUMMARY = {
    "vertices": 973, "sources": 973, "targets": 973, "pairs": 945_756, "reached": 837_199, "mean": 1067.885,
    "diameter": 3185.218, "radius": 1677.058, "central_sources": 889, "central_reach": 941,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "of the 889 sources that reach 941 vertices or more"),
        ({"sources": 889}, ""),
        ({"central_sources": 1}, "of the only source that reaches 941 vertices or more"),
        ({"targets": 950}, "of the 889 sources that reach 941 targets or more"),
        ({"radius": None}, ""),
        ({"central_sources": None, "central_reach": None}, "of all sources that reach any"),
    ],
)
def test_it_is_said_which_sources_were_compared(change: dict, words: str) -> None:
    summary = {name: value for name, value in {**SUMMARY, **change}.items() if value is not None or name == "radius"}
    assert compared(summary) == words


def test_the_summary_of_an_older_store_is_shown() -> None:
    old = {name: value for name, value in SUMMARY.items() if not name.startswith("central")} | {"radius": 4.28}
    assert summary_lines(SUMMARY)[-1] == "  radius    1677.058 of the 889 sources that reach 941 vertices or more"
    assert summary_lines(old)[-1] == "  radius    4.28 of all sources that reach any"
