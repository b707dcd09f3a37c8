"""Which devices get runners, alone or in groups, and what each process may see; no GPU is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.runner import gpus
from service.runner.gpus import (
    beside_short,
    check_answer_device,
    devices,
    numbers,
    of_runner,
    see_those_of_a_runner,
    singles,
    visible,
    with_shares,
)
from service.settings import Settings
from storage.errors import InvalidRequest


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A node with four GPUs."""
    for number in range(4):
        (tmp_path / "gpus" / f"0000:0{number}:00.0").mkdir(parents=True)
    monkeypatch.setattr(gpus, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda _name: object())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # restored afterwards, whatever a test sets
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    see_those_of_a_runner.cache_clear()
    return monkeypatch


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("none", []),
        ("cpu", ["cpu"]),
        ("cuda0, cuda1,cuda0", ["cuda0", "cuda1"]),
        ("cuda0-3", ["cuda0-3"]),
        ("cpu,cuda2-3,cuda0", ["cpu", "cuda2-3", "cuda0"]),
        ("cpu, cuda1,cpu", ["cpu", "cuda1", "cpu2"]),
        ("cpu,short, short", ["cpu", "short"]),
    ],
)
def test_devices_are_named(setting: str, found: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpus, "usable_processors", lambda: 4)
    assert devices(setting) == found


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cpu,tpu", "'tpu' is no device"),
        ("cuda3-1", "'cuda3-1' is no device"),
        ("cuda0-", "'cuda0-' is no device"),
        ("cuda0-1,cuda1", "cuda0-1 and cuda1 would both work on GPU 1"),
        ("cuda2,cuda0-3", "cuda2 and cuda0-3 would both work on GPU 2"),
    ],
)
def test_what_names_no_device_or_one_for_two_runners_is_refused(setting: str, words: str):
    with pytest.raises(InvalidRequest, match=words) as caught:
        devices(setting)
    assert caught.value.field == "runners"


def test_every_gpu_gets_a_runner_and_without_one_the_processors(four: pytest.MonkeyPatch, tmp_path: Path):
    assert devices("auto") == ["cuda0", "cuda1", "cuda2", "cuda3"]
    four.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert devices("auto") == ["cuda0"]
    four.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert devices("auto") == ["cpu"]
    four.delenv("CUDA_VISIBLE_DEVICES")
    four.setattr(gpus, "_NVIDIA", tmp_path / "none")
    assert devices("auto", 4) == ["cpu"]


@pytest.mark.parametrize(
    ("each", "found"),
    [
        (2, ["cuda0-1", "cuda2-3"]),
        (3, ["cuda0-2", "cuda3"]),
        (4, ["cuda0-3"]),
        (8, ["cuda0-3"]),
    ],
)
@pytest.mark.usefixtures("four")
def test_groups_of_gpus(each: int, found: list[str]):
    assert devices("auto", each) == found
    together = [number for device in found for number in numbers(device)]
    assert together == [0, 1, 2, 3]
    assert [single for device in found for single in singles(device)] == [f"cuda{n}" for n in together]
    assert all(len(device) <= 20 for device in found), "as long as the database keeps"


def test_processors_are_one_device():
    assert list(numbers("cpu")) == []
    assert singles("cpu") == ["cpu"]


def test_a_process_plans_with_as_many_gpus_as_the_runner_that_has_most(four: pytest.MonkeyPatch, tmp_path: Path):
    see_those_of_a_runner(Settings(data_dir=tmp_path, runners="none"))
    see_those_of_a_runner(Settings(data_dir=tmp_path, runners="cpu"))
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    for settings, seen in (
        (Settings(data_dir=tmp_path), "0"),
        (Settings(data_dir=tmp_path, gpus_per_runner=3), "0,1,2"),
        (Settings(data_dir=tmp_path, runners="cuda0,cuda2-3"), "2,3"),
    ):
        four.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        see_those_of_a_runner(settings)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
        see_those_of_a_runner(settings)  # what is seen now is not narrowed again
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_names_that_this_process_has_been_given_are_passed_on(four: pytest.MonkeyPatch):
    assert visible(1, 3) == "1,3"
    four.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert visible(1, 0) == "GPU-b,GPU-a"


def test_runners_that_share_the_processors_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpus, "usable_processors", lambda: 5)
    monkeypatch.setattr(gpus, "available_memory", lambda: 1000)
    shared = with_shares(Settings(data_dir=tmp_path, runners="cpu,cpu"))
    assert (shared.threads, shared.memory) == (2, 500)
    assert len({shared.slot(device) for device in devices("cpu,cpu")}) == 2
    assert len({shared.runner_lock(single) for device in devices("cpu,cpu") for single in singles(device)}) == 2
    shared = with_shares(Settings(data_dir=tmp_path, runners="cpu,cpu,cuda0", threads=5))
    assert (shared.threads, shared.memory) == (5, 333)
    shared = with_shares(Settings(data_dir=tmp_path, runners="cpu,cpu", memory=77))
    assert (shared.threads, shared.memory) == (2, 77)
    alone = Settings(data_dir=tmp_path, runners="cpu,cuda0")
    assert with_shares(alone) is alone


def test_more_runners_than_processors_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpus, "usable_processors", lambda: 2)
    with pytest.raises(InvalidRequest, match="3 runners of the processors, but there are 2"):
        devices("cpu,cpu,cpu")
    monkeypatch.setattr(gpus, "usable_processors", lambda: 1)
    assert devices("cpu") == ["cpu"]
    with pytest.raises(InvalidRequest, match="'cpu2' is no device"):
        devices("cpu2")


def test_a_short_runner_stands_beside_the_others_where_there_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpus, "usable_processors", lambda: 4)
    for free, found in ((4000, "cpu,short"), (3999, "cpu")):
        monkeypatch.setattr(gpus, "available_memory", lambda free=free: free)
        auto = with_shares(Settings(data_dir=tmp_path, short_memory=1000))
        assert auto.runners == found
        assert (auto.threads, auto.memory) == (None, None), "the short runner takes no share"
        assert with_shares(auto).runners == found, "it is decided once"
    assert with_shares(Settings(data_dir=tmp_path, runners="cpu", short_memory=1)).runners == "cpu"
    named = with_shares(Settings(data_dir=tmp_path, runners="cpu,cpu,short", short_memory=999))
    assert (named.threads, named.memory) == (2, 1500)
    assert devices(named.runners) == ["cpu", "cpu2", "short"]


@pytest.mark.parametrize("given", [None, 300, 5000])
def test_the_memory_of_the_short_runner_is_kept_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: int | None
):
    monkeypatch.setattr(gpus, "available_memory", lambda: 7000)
    monkeypatch.setattr(gpus, "resident_bytes", lambda: 500)
    settings = Settings(data_dir=tmp_path, runners="cuda0,short", memory=given, short_memory=1000)
    assert beside_short(settings) == 6500
    assert beside_short(settings.model_copy(update={"runners": "cuda0"})) is None
    own = Settings.load(of_runner(settings, "short"))
    assert own.memory == min(1000, given or 1000)
    assert beside_short(own) is None, "the short runner keeps nothing free for another one"
    assert of_runner(settings, "short")["CUDA_VISIBLE_DEVICES"] == "-1"
    assert Settings.load(of_runner(settings, "cuda0")).memory == given


def test_answers_of_a_gpu_need_one(four, tmp_path):
    for device in ("cpu", "auto", "cuda"):
        check_answer_device(Settings(answer_device=device))
    four.setattr(gpus, "_NVIDIA", tmp_path / "none")
    for device in ("cpu", "auto"):
        check_answer_device(Settings(answer_device=device))
    with pytest.raises(InvalidRequest, match="there is no NVIDIA GPU on this machine"):
        check_answer_device(Settings(answer_device="cuda"))
