"""Schemas of the answers about the service itself: version, limits, devices, health."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.api.schemas.wire import Wire, moment
from storage.jobs.store import RunnerRecord


class Version(Wire):
    """Versions of the software and of this interface."""

    apsp: str
    api: Literal["v1"] = "v1"


class DeviceDocument(Wire):
    """The device of one runner; ``state`` is ``silent`` if the runner has sent no heartbeat recently."""

    runner: str = Field(description="The runner's slot: node and device.", examples=["gpu-node-1/cuda0"])
    device: str = Field(examples=["cuda0", "cpu"])
    name: str | None = Field(description="Name of the processor or GPU.", examples=["NVIDIA H100 80GB HBM3"])
    state: Literal["idle", "busy", "sick", "silent"]
    reason: str | None = Field(description="Why it is out of service.")
    memory_bytes: int | None = Field(description="Total memory, if the runner knows it.")
    memory_used_bytes: int | None
    seen: datetime

    @classmethod
    def of(cls, runner: RunnerRecord, silent: bool) -> DeviceDocument:
        """Return the document that describes the device of a runner.  The job of a busy runner is not shown."""
        figures = runner.figures or {}
        memory = figures.get("memory") or {}
        return cls(
            runner=runner.slot, device=runner.device, name=figures.get("name"),
            state="silent" if silent else runner.state,  # type: ignore[arg-type]
            reason=runner.detail if runner.state == "sick" else None,
            memory_bytes=memory.get("limit"), memory_used_bytes=memory.get("used"), seen=moment(runner.heartbeat),
        )  # fmt: skip


class Devices(Wire):
    """All devices that solve jobs of this service."""

    devices: list[DeviceDocument]


class Limit(Wire):
    """One limit and the setting that holds it; a member is null if the limit is not set, or has no setting."""

    value: int | float | None
    setting: str | None
    description: str


class Limits(Wire):
    """All limits that a client can run into."""

    limits: dict[str, Limit]


class Health(Wire):
    """The result of each health check, by name: ``ok`` or what is wrong."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default={})
