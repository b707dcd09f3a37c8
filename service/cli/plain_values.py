"""Converts plain values of a command line without Typer.  Typer converts all others, and writes every refusal.

Typer converts each value, also a default, with pydantic; the import of pydantic and its converters take 0.1 s of
processor time in a short solve.  A text needs no conversion, and the conversions of a number, a choice and a readable
path are simple, so this module does them.  Typer's own converter takes every other value (decision 230).

Pydantic takes texts for numbers that are none, such as ``1_000`` and ``nan``, so numbers never reach it as texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer

from storage.number_texts import decimal_number, whole_number

#: Marks a value that Typer has to convert.
TYPERS: Final = object()


def take_plainly(parameter: Any) -> Any:
    """Make a parameter of a command convert plain values without Typer; returns the parameter.

    Args:
        parameter: an option or argument that Typer has made.  If a later version of Typer does not call
            ``get_runtime_param`` for the converter, or has no ``type_descriptor``, Typer converts all values.
    """
    typers_own, described = getattr(parameter, "get_runtime_param", None), getattr(parameter, "type_descriptor", None)
    if typers_own is not None and described is not None and not isinstance(typers_own, _Converter):
        plain = plain_reader(described.annotation, described.parameter_info)
        parameter.get_runtime_param = _Converter(typers_own, plain)
    return parameter


def plain_reader(kind: Any, declared: Any) -> Callable[[Any], Any]:
    """Return a function that converts a plain value, and returns ``TYPERS`` for any other value.

    The function raises ValueError for a text in place of a number.

    Args:
        kind: the type of the values; ``list[...]`` for parameters that may be repeated.
        declared: the declared limits: bounds, or what a path must be.
    """
    if get_origin(kind) is list:
        one = plain_reader(get_args(kind)[0], declared)
        return lambda values: _all_plain(values, one)
    if declared.parser is not None:
        return lambda _: TYPERS
    if get_origin(kind) is Literal and declared.case_sensitive:
        choices = get_args(kind)
        return lambda value: value if isinstance(value, str) and value in choices else TYPERS
    if kind is str:
        return lambda value: value if type(value) is str else TYPERS
    if kind in (int, float):
        return lambda value: _number(value, kind, declared.min, declared.max)
    if kind is Path and not (declared.exists or declared.writable or declared.resolve_path or declared.path_type):
        return lambda value: _path(value) if declared.file_okay and declared.dir_okay else TYPERS
    return lambda _: TYPERS


class _Converter:
    """Replaces ``get_runtime_param`` of Typer, and the converter that it returns.

    Typer makes its own converter only when a value needs it.
    """

    def __init__(self, typers_own: Callable[[], Any], plain: Callable[[Any], Any]) -> None:
        self._typers_own, self._plain = typers_own, plain

    def __call__(self) -> _Converter:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value; raises Typer's error if the value is refused.

        Args:
            value: the value as it was given, or the default; None if there is neither.
            param: the parameter.
            ctx: Typer's context of the command.
        """
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        try:
            found = self._plain(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx, param) from None
        return self._typers_own().coerce(value, param=param, ctx=ctx) if found is TYPERS else found


def _all_plain(values: Any, one: Callable[[Any], Any]) -> Any:
    if not isinstance(values, (list, tuple)):
        return TYPERS
    found = [one(value) for value in values]
    return TYPERS if any(value is TYPERS for value in found) else found


def _number(value: Any, kind: type[int] | type[float], least: Any, most: Any) -> Any:
    if type(value) is str:
        value = whole_number(value) if kind is int else decimal_number(value, infinite=True)
    if type(value) is not kind or (least is not None and value < least) or (most is not None and value > most):
        return TYPERS
    return value


def _path(value: Any) -> Any:
    """Return the path of a text, or ``TYPERS`` if the path exists and cannot be read: then Typer writes the refusal."""
    if isinstance(value, Path):
        return value if type(value) is type(Path()) and not _refused(value) else TYPERS
    return Path(value) if type(value) is str and not _refused(value) else TYPERS


def _refused(path: str | Path) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - as Typer does: an empty text names no file
    except OSError:
        return False
    except ValueError:  # the path contains a null character
        return True
    return not os.access(path, os.R_OK)
