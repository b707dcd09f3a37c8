"""``apsp warm`` says what was compiled, and where the kernels of a GPU came from."""

from __future__ import annotations

import json

import pytest

from engine.api import warming
from engine.devices.cuda import context
from service.cli import main
from storage.errors import InvalidRequest


@pytest.fixture(autouse=True)
def nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "missing", lambda _: [])
    monkeypatch.setattr(context, "open_device", lambda: None)
    monkeypatch.setattr(context, "ensure_kernels", lambda *, monitor: (60, 4))


def test_of_processors_unless_a_gpu_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    count = len(warming.listed_kernels())
    assert main.run(["warm"]) == 0
    assert capsys.readouterr().out == f"all {count} kernels are compiled\n"
    assert main.run(["warm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kernels"], found["compiled"], found["shipped"], found["gpu_compiled"]) == (count, 0, 0, 0)


def test_of_a_gpu_it_says_how_many_were_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["warm", "--device", "cuda"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["all 64 modules for the GPU are ready: 60 were there, 4 in cupy's cache"]
    assert main.run(["warm", "--device", "cuda", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shipped"], found["gpu_compiled"]) == (60, 4)


def test_without_a_gpu_it_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise InvalidRequest("there is no NVIDIA driver on this machine", field="device")

    monkeypatch.setattr(context, "open_device", refuse)
    assert main.run(["warm", "--device", "cuda"]) != 0
    assert "there is no NVIDIA driver on this machine" in capsys.readouterr().err
