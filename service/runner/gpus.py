"""Decides which devices of this node get a runner and which GPUs a process may see, without using CUDA.

A runner's device is ``cpu``, one GPU such as ``cuda0``, or several such as ``cuda0-3``. If several runners share the
processors, the device of the second one is ``cpu2``, and so on.  The short runner, whose device is called ``short``,
takes only jobs that are predicted to be short and small, and solves them while other runners solve longer jobs.
"""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import Final

from engine.model.system import available_memory, resident_bytes, usable_processors
from service.settings import Settings
from storage.errors import InvalidRequest

_NVIDIA: Final = Path("/proc/driver/nvidia/gpus")
_DEVICE: Final = re.compile(r"cuda([0-9]{1,4})(?:-([0-9]{1,4}))?")
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
#: the device of the short runner
SHORT: Final = "short"
#: ``auto`` starts a short runner if the free memory is this many times the memory that a short runner may use
_PLENTY: Final = 4


def devices(setting: str, gpus_per_runner: int = 1) -> list[str]:
    """Return the devices of this node that get a runner: one for each GPU or group of GPUs, or the processors.

    ``auto`` includes no short runner, because whether there is one depends on the memory that is free at the start:
    :func:`with_shares` decides it once.

    Args:
        setting: ``auto``, ``none``, or devices with commas between them.
        gpus_per_runner: GPUs of each runner, for ``auto``; the last runner gets the remaining GPUs.

    Raises:
        InvalidRequest: the setting has a word that is no device, gives a GPU to two runners, or gives the processors to
            more runners than there are processors.
    """
    if setting == "none":
        return []
    if setting == "auto":
        count = _gpus()
        groups = [range(first, min(first + gpus_per_runner, count)) for first in range(0, count, gpus_per_runner)]
        return [_name(group) for group in groups] or ["cpu"]
    words = [word.strip() for word in setting.split(",")]
    sharing = _sharing(words.count("cpu"))
    found = list(dict.fromkeys(sharing.pop(0) if word == "cpu" else word for word in words))
    taken: dict[int, str] = {}
    for word in found:
        group = numbers(word)
        if word in words and word not in ("cpu", SHORT) and not group:
            message = (
                f"runners: {word!r} is no device; auto, none, or devices such as cpu or cuda0,cuda1, "
                "cuda0-3 for one runner with four GPUs, or short for one that takes short jobs only"
            )
            raise InvalidRequest(message, field="runners")
        for number in group:
            if number in taken:
                message = f"runners: {taken[number]} and {word} would both work on GPU {number}; give it to one runner"
                raise InvalidRequest(message, field="runners")
            taken[number] = word
    return found


def _sharing(count: int) -> list[str]:
    """Return the device names of several runners that share the processors."""
    if count > 1 and count > usable_processors():
        message = f"runners: {count} runners of the processors, but there are {usable_processors()}: leave out some cpu"
        raise InvalidRequest(message, field="runners")
    return [f"cpu{i}" if i > 1 else "cpu" for i in range(1, count + 1)]


def with_shares(settings: Settings) -> Settings:
    """Return settings that divide processors and memory among the runners that share the processors.

    A job may then use an equal part of the processors, and of the memory that is free now, unless the settings define
    these limits; the processes that plan jobs use the same numbers.  The short runner takes no part in this: it has all
    processors, and its memory is kept free by :func:`beside_short`.  ``auto`` becomes the devices of this node, and a
    short runner if there is plenty of memory.
    """
    names = devices(settings.runners, settings.gpus_per_runner)
    free = available_memory()
    if settings.runners == "auto" and free >= _PLENTY * settings.short_memory:
        names.append(SHORT)
    shares: dict[str, object] = {"runners": ",".join(names)} if settings.runners == "auto" else {}
    sharing = [name for name in names if name != SHORT]
    if sum(not numbers(name) for name in sharing) >= 2:
        if settings.threads is None:
            shares["threads"] = max(1, usable_processors() // len(sharing))
        if settings.memory is None:
            kept = settings.short_memory if SHORT in names else 0
            shares["memory"] = max(1, (free - kept) // len(sharing))
    return settings.model_copy(update=shares) if shares else settings


def of_runner(settings: Settings, device: str) -> dict[str, str]:
    """Return the environment variables of one runner: its settings, and the GPUs that it may see.

    Args:
        settings: the settings of the service, from :func:`with_shares`.
        device: the runner's device.
    """
    if device == SHORT:
        memory = min(settings.short_memory, settings.memory or settings.short_memory)
        own = settings.model_copy(update={"runners": SHORT, "memory": memory})
        return {**own.environment(), _VISIBLE: "-1"}
    environment = settings.environment()
    if numbers(device):
        environment[_VISIBLE] = visible(*numbers(device))
    sharing = [name for name in devices(settings.runners, settings.gpus_per_runner) if name != SHORT]
    if len(sharing) > 1 and settings.threads is None:
        environment["APSP_THREADS"] = str(max(1, usable_processors() // len(sharing)))
    return environment


def beside_short(settings: Settings) -> int | None:
    """Return the bytes that a job of another runner may use now, so that the short runner's memory stays free.

    None means that the settings do not name both a short runner and other runners.  So the short runner itself gets
    None: its own settings name no other runner.
    """
    names = devices(settings.runners, settings.gpus_per_runner)
    if SHORT not in names or len(names) == 1:
        return None
    return max(1, available_memory() + resident_bytes() - settings.short_memory)


def check_answer_device(settings: Settings) -> None:
    """Refuse the setting to answer on a GPU where there is none.  The check does not use CUDA.

    Raises:
        InvalidRequest: ``answer_device`` is ``cuda``, and this machine has no GPU.
    """
    if settings.answer_device == "cuda" and not _gpus():
        raise InvalidRequest(
            "answer_device: cuda, and there is no NVIDIA GPU on this machine, or it cannot be seen from here; auto "
            "takes one where there is one",
            field="answer_device",
        )


def numbers(device: str) -> range:
    """Return the numbers of the GPUs of a runner's device; empty for ``cpu`` and for words that name no device."""
    match = _DEVICE.fullmatch(device)
    if match is None:
        return range(0)
    first = int(match[1])
    return range(first, int(match[2] or first) + 1)


def singles(device: str) -> list[str]:
    """Return the single devices of which a runner's device consists; each has a lock, so that no other runner uses
    it.
    """
    return [f"cuda{number}" for number in numbers(device)] or [device]


def visible(*devices: int) -> str:
    """Return a CUDA_VISIBLE_DEVICES with which a child process sees only ``devices``, numbered as in this process."""
    names = _named() or []
    return ",".join(names[device] if device < len(names) else str(device) for device in devices)


@cache
def see_those_of_a_runner(settings: Settings) -> None:
    """Let this process see as many GPUs as the largest runner has, so that it plans as that runner does.

    The call has an effect only before CUDA is loaded, and only on a node that has runners with GPUs.
    """
    groups = [numbers(device) for device in devices(settings.runners, settings.gpus_per_runner)]
    most = max(groups, key=len, default=range(0))
    if most:
        os.environ[_VISIBLE] = visible(*most)


def _name(group: range) -> str:
    return f"cuda{group[0]}" if len(group) == 1 else f"cuda{group[0]}-{group[-1]}"


def _named() -> list[str] | None:
    setting = os.environ.get(_VISIBLE)
    return None if setting is None else [name.strip() for name in setting.split(",") if name.strip()]


def _gpus() -> int:
    """Return the number of GPUs that this service may use, found without CUDA, which only the runners import."""
    if importlib.util.find_spec("cupy") is None or not _NVIDIA.is_dir():
        return 0
    named = _named()
    if named is not None:
        return len([name for name in named if name != "-1"])
    return len(list(_NVIDIA.iterdir()))
