"""A value that is taken plainly is what Typer makes of it, for every parameter of every command; texts that are no
numbers are refused, also those that Typer takes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from service.cli import main
from service.cli.help_pages import HelpfulCommand
from service.cli.plain_values import TYPERS, plain_reader, take_plainly
from storage.number_texts import decimal_number, whole_number

PROGRAM = get_command(main.app)
COMMANDS = {**PROGRAM.commands, **{f"key {name}": one for name, one in PROGRAM.commands["key"].commands.items()}}
TEXTS = (
    "", " ", "a", "x.csv", "-", "--x", "ünï", "\0", "0", "1", "7", "-3", "+3", " 5", "5 ", "1_000", "007", "0x10",
    "1e3", "3.0", "2.5", ".5", "5.", "nan", "inf", "-inf", "٣", "1e999", "1" * 15, "9" * 16, "9" * 40, "0.1",
    "123456789.123456",
    "true", "None", "auto", "AUTO", "cpu", "none", "near", "zstd", "/", "/nowhere/at/all", str(Path(__file__).parent),
)  # fmt: skip


def converted(convert: Any, value: Any, parameter: Any, context: typer.Context) -> object:
    """Return the value and its type, or the error and its words."""
    try:
        found = convert(value, param=parameter, ctx=context)
    except Exception as error:  # whatever Typer raises is compared
        return type(error), str(error), getattr(error, "message", "")
    return type(found), found, [type(item) for item in found] if isinstance(found, (list, tuple)) else []


def expected(typers_own: Any, value: Any, parameter: Any, context: typer.Context) -> object:
    """Return what Typer makes of a value, or the refusal of a text in place of a number, which Typer may take."""
    readers = {int: whole_number, list[int]: whole_number, float: lambda text: decimal_number(text, infinite=True)}
    read = readers.get(parameter.type_descriptor.annotation)
    for text in value if isinstance(value, (list, tuple)) else (value,):
        if read is not None and isinstance(text, str):
            try:
                read(text)
            except ValueError as error:
                return typer.BadParameter, str(error), str(error)
    return converted(typers_own.coerce, value, parameter, context)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_parameter_takes_what_typer_takes(name: str) -> None:
    """Also files that cannot be read, numbers out of bounds and choices that are none."""
    command = COMMANDS.get(name, PROGRAM)
    context = typer.Context(command, info_name=name)
    assert command.get_params(context)
    for parameter in command.get_params(context):
        take_plainly(parameter)
        typers_own = type(parameter).get_runtime_param(parameter)
        many = parameter.multiple or parameter.nargs == -1
        values = [(), *[(text,) for text in TEXTS], TEXTS[2:5]] if many else TEXTS
        for value in [None, parameter.default, *values]:
            ours = converted(parameter.get_runtime_param().coerce, value, parameter, context)
            assert repr(ours) == repr(expected(typers_own, value, parameter, context)), (parameter.name, value)


def test_every_kind_of_value_is_taken_plainly() -> None:
    for command in COMMANDS.values():
        for one in command.params:
            described = one.type_descriptor
            if described.annotation is not bool:
                text = (described.choices or ("1",))[0]
                read = plain_reader(described.annotation, described.parameter_info)
                assert read([text] if one.multiple or one.nargs == -1 else text) is not TYPERS, one.name


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (Path, {"exists": True}),
        (Path, {"file_okay": False}),
        (Path, {"dir_okay": False}),
        (Path, {"writable": True}),
        (Path, {"resolve_path": True}),
        (Path, {"path_type": str}),
        (Path, {"allow_dash": True}),
        (str, {"path_type": bytes}),
        (str, {"parser": lambda text: text * 2}),
        (int, {"min": 2, "max": 5}),
        (int, {"min": 2, "max": 5, "clamp": True}),
        (float, {"min": 0.5}),
        (Literal["Near", "near", "1"], {"case_sensitive": False}),
        (list[int], {"max": 4}),
    ],
)
def test_what_no_command_declares_today_is_taken_as_typer_takes_it(
    kind: Any, declared: dict[str, Any], tmp_path: Path
) -> None:
    def command(value: Any) -> None:
        """Do nothing."""

    option = typer.Option("--value", **declared)
    command.__annotations__["value"] = Annotated[kind, option]
    app = typer.Typer(add_completion=False)
    app.command(cls=HelpfulCommand)(command)
    (tmp_path / "there").touch()
    made = get_command(app)
    context = typer.Context(made)
    (parameter,) = [one for one in made.get_params(context) if one.name == "value"]
    typers_own = type(parameter).get_runtime_param(parameter)
    for value in [None, *TEXTS, str(tmp_path), str(tmp_path / "there")]:
        given = (value,) if parameter.multiple and value is not None else value
        ours = converted(parameter.get_runtime_param().coerce, given, parameter, context)
        assert repr(ours) == repr(expected(typers_own, given, parameter, context)), value


def test_a_file_that_cannot_be_read_is_refused_in_typers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "locked.csv"
    locked.touch()
    monkeypatch.setattr(os, "access", lambda *_args, **_more: False)
    for name in ("inspect", "plan"):
        with pytest.raises(typer.BadParameter, match="is not readable"):
            COMMANDS[name].make_context(name, [str(locked)])


def test_a_typer_without_that_method_converts_all_values() -> None:
    class Parameter:
        """A parameter of a later Typer."""

    parameter = Parameter()
    assert take_plainly(parameter) is parameter
    assert vars(parameter) == {}
    assert issubclass(HelpfulCommand, TyperCommand)
