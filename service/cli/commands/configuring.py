"""``apsp serve --show-settings``: shows every setting, its value, and where the value comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from service.cli.commands.output import emit, emit_json, table
from service.logs import redacted
from service.settings import Settings, variable


def show_settings(arguments: Mapping[str, Any], *, as_json: bool) -> None:
    """Print every setting with the value that the service would use; passwords in addresses are hidden.

    Args:
        arguments: settings of the command line; None means not given.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InvalidRequest: a value is invalid.
    """
    settings = Settings.load(**arguments)
    found = [
        {
            "setting": variable(name), "value": _text(getattr(settings, name)), "from": _origin(name, arguments),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]  # fmt: skip
    if as_json:
        emit_json({"settings": found})
        return
    rows = [(str(one["setting"]), str(one["value"] or "-"), str(one["from"])) for one in found]
    emit(table([("setting", "value", "from"), *rows]))


def _text(value: object) -> str | None:
    """Return a value as its environment variable would contain it, with passwords hidden; None if it is not set."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else redacted(str(value))


def _origin(name: str, arguments: Mapping[str, Any]) -> str:
    if arguments.get(name) is not None:
        return "command line"
    return "environment" if os.environ.get(variable(name)) else "default"
