from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings
from storage.errors import InvalidRequest


def test_arguments_go_before_environment_before_defaults():
    settings = Settings.load({"APSP_PORT": "9", "APSP_MAX_CELLS": "5", "APSP_HOST": ""}, port=10, host=None)
    assert (settings.port, settings.max_cells, settings.host) == (10, 5, "127.0.0.1")


def test_sizes_may_have_units():
    assert Settings.load({"APSP_MAX_UPLOAD_BYTES": "2GiB"}).max_upload_bytes == 2**31


def test_child_processes_get_the_same_settings():
    settings = Settings(data_dir=Path("/tmp/x"), threads=2, memory=10**9, stop_seconds=1.5)
    assert Settings.load(settings.environment()) == settings


@pytest.mark.parametrize(
    ("environ", "arguments", "words"),
    [
        ({"APSP_PORT": "http"}, {}, ["APSP_PORT", "http"]),
        ({"APSP_PROXIES": "nginx"}, {}, ["APSP_PROXIES", "nginx"]),
        ({"APSP_PROXIES": "*, ::1"}, {}, ["APSP_PROXIES", "alone"]),
        ({"APSP_MAX_UPLOAD_BYTES": "many"}, {}, ["APSP_MAX_UPLOAD_BYTES", "many"]),
        ({}, {"port": 70000}, ["port", "70000"]),
        ({}, {"colour": "red"}, ["colour", "red"]),
    ],
)
def test_wrong_values_are_named(environ: dict[str, str], arguments: dict[str, object], words: list[str]):
    with pytest.raises(InvalidRequest) as caught:
        Settings.load(environ, **arguments)
    assert all(word in str(caught.value) for word in words)
    assert caught.value.details() == {"field": words[0]}
