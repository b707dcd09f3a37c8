"""Options are declared once, and functions that take them show each one."""

from __future__ import annotations

import inspect
from typing import Annotated, TypedDict, Unpack

import pytest

from storage.options import FileReadingOptions, Option, declared, lists_options
from storage.readers import read_graph


class First(TypedDict, total=False):
    one: Annotated[int, Option("The first.", default=1, least=1)]


class Second(First, total=False):
    two: Annotated[str | None, Option("The second.")]


def test_what_is_declared_comes_in_order_with_inherited_options_first():
    found = declared(Second)
    assert list(found) == ["one", "two"]
    assert found["one"] == (int, Option("The first.", default=1, least=1))
    assert found["two"][0] == str | None


def test_a_function_shows_each_option_with_its_default():
    @lists_options
    def work(where: str, **options: Unpack[Second]) -> Second:
        """Give back what was given."""
        return options

    parameters = inspect.signature(work).parameters
    assert list(parameters) == ["where", "one", "two"]
    assert [parameters[name].default for name in ("one", "two")] == [1, None]
    assert work("here", two="2") == {"two": "2"}


def test_reading_takes_what_is_declared_and_nothing_else(tmp_path):
    (tmp_path / "g.csv").write_text("a,b,w\n1,2,3\n")
    assert set(inspect.signature(read_graph).parameters) == {"path", "limits", *declared(FileReadingOptions)}
    defaults = {name: option.default for name, (_, option) in declared(FileReadingOptions).items()}
    assert read_graph(tmp_path / "g.csv", **defaults)[0].m == read_graph(tmp_path / "g.csv")[0].m == 1
    with pytest.raises(TypeError, match="wieght"):
        read_graph(tmp_path / "g.csv", wieght="w")
