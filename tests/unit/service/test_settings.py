from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.cli.commands.configuring import show_settings
from service.settings import Settings, variable
from service.units import parse_size
from storage.errors import InvalidRequest

ROOT = Path(__file__).resolve().parents[3]


def test_arguments_go_before_environment_before_defaults():
    settings = Settings.load({"APSP_PORT": "9", "APSP_MAX_CELLS": "5", "APSP_HOST": ""}, port=10, host=None)
    assert (settings.port, settings.max_cells, settings.host) == (10, 5, "127.0.0.1")


def test_sizes_may_have_units():
    assert Settings.load({"APSP_MAX_UPLOAD_BYTES": "2GiB"}).max_upload_bytes == 2**31


def test_child_processes_get_the_same_settings():
    settings = Settings(data_dir=Path("/tmp/x"), threads=2, memory=10**9, stop_seconds=1.5, read_seconds=float("inf"))
    assert Settings.load(settings.environment()) == settings


@pytest.mark.parametrize(
    ("environ", "arguments", "words"),
    [
        ({"APSP_PORT": "http"}, {}, ["APSP_PORT", "http"]),
        ({"APSP_PROXIES": "nginx"}, {}, ["APSP_PROXIES", "nginx"]),
        ({"APSP_PROXIES": "*, ::1"}, {}, ["APSP_PROXIES", "alone"]),
        ({"APSP_MAX_UPLOAD_BYTES": "many"}, {}, ["APSP_MAX_UPLOAD_BYTES", "many"]),
        ({"APSP_PORT": "80_00"}, {}, ["APSP_PORT", "80_00"]),
        ({"APSP_READERS": " 2"}, {}, ["APSP_READERS", "' 2'"]),
        ({"APSP_STOP_SECONDS": "1_0"}, {}, ["APSP_STOP_SECONDS", "1_0"]),
        ({"APSP_RETAIN_SECONDS": "nan"}, {}, ["APSP_RETAIN_SECONDS", "nan"]),
        ({}, {"port": 70000}, ["port", "70000"]),
        ({}, {"colour": "red"}, ["colour", "red"]),
    ],
)
def test_wrong_values_are_named(environ: dict[str, str], arguments: dict[str, object], words: list[str]):
    with pytest.raises(InvalidRequest) as caught:
        Settings.load(environ, **arguments)
    assert all(word in str(caught.value) for word in words)
    assert caught.value.details() == {"field": words[0]}


def documented_settings() -> dict[str, str]:
    """The variables of the page "Configuration" that the service reads, and the defaults that it says they have."""
    text = (ROOT / "docs" / "configuration.md").read_text().partition("## The command line")[0]
    rows = re.findall(r"^\| `(APSP_\w+)` \| (.+?) \| (.+?\.) \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| `APSP_")
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: default for name, default, _ in rows}


def test_the_page_of_settings_has_every_setting_with_its_default():
    documented = documented_settings()
    assert set(documented) == {variable(name) for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        shown, default = documented[variable(name)].strip("`"), field.default
        if default is None or default == "":
            assert shown == "not set", name
        elif isinstance(default, bool | str | Path):
            assert shown == str(default).lower(), name
        elif shown[-1] == "B":
            assert parse_size(shown, field=name) == default
        elif "PORT" in variable(name):
            assert shown == str(default), "a port is an address, and not an amount"
        else:
            assert float(shown.replace(",", "")) == default, name


def test_every_variable_that_the_programs_read_is_on_the_page():
    page = (ROOT / "docs" / "configuration.md").read_text()
    read = re.compile(r"environ(?:\.get\(|\[)\"([A-Z][A-Z_]+)\"")
    sources = [path for name in ("service", "engine", "storage", "apsp") for path in (ROOT / name).rglob("*.py")]
    named = {name for path in sources for name in read.findall(path.read_text())}
    assert {"APSP_SERVER", "APSP_DEBUG"} <= named
    lost = {name for name in named if name.startswith("APSP_") and f"`{name}`" not in page}
    assert lost == set()


def test_settings_are_shown_with_their_origin_and_without_passwords(monkeypatch, capsys):
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.setenv("APSP_DATABASE_URL", "postgresql://apsp:geheim@db/apsp")
    monkeypatch.setenv("APSP_AUTH", "no")
    show_settings({"port": 99, "host": None}, as_json=True)
    found = {one["setting"]: one for one in json.loads(capsys.readouterr().out)["settings"]}
    assert set(found) == {variable(name) for name in Settings.model_fields}
    assert (found["APSP_PORT"]["value"], found["APSP_PORT"]["from"]) == ("99", "command line")
    assert (found["APSP_AUTH"]["value"], found["APSP_AUTH"]["from"]) == ("false", "environment")
    assert (found["APSP_HOST"]["value"], found["APSP_HOST"]["from"]) == ("127.0.0.1", "default")
    assert found["APSP_DATABASE_URL"]["value"] == "postgresql://apsp:***@db/apsp"
    assert found["APSP_MEMORY"]["value"] is None
    show_settings({}, as_json=False)
    shown = capsys.readouterr().out
    assert "geheim" not in shown
    assert len(shown.splitlines()) == len(Settings.model_fields) + 1
    monkeypatch.setenv("APSP_PORT", "http")
    with pytest.raises(InvalidRequest, match="APSP_PORT"):
        show_settings({}, as_json=False)
