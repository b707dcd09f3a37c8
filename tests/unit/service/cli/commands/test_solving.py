"""The lines of a plan that say how a matrix is streamed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.plan import Phase, Plan
from engine.model.tiling import Tiling
from service.cli.commands.solving import describe_plan

CUT = Tiling("host", 1024, 2048, 4)
PLAN = Plan(
    "blocked-floyd-warshall", "float32", "cuda", 8, (65_536, 65_536), 2**34, 2**34, 20.0, "", "", device_memory=2**32,
    phases=(Phase("relax", 20.0, bytes=2**39),), tier="host",
)  # fmt: skip


@pytest.mark.parametrize(
    ("streaming", "devices", "said"),
    [
        (replace(CUT, passes=True), 1, "host: stripes of 1,024 rows, two passes over 32 panels of 2,048 rows, 4 slots, "
         "512 GiB to and from the GPU"),
        (replace(CUT, passes=True), 2, "host: stripes of 1,024 rows, two passes over 32 panels of 2,048 rows, 4 slots, "
         "2 GPUs take turns, 512 GiB to and from the GPUs"),
        (replace(CUT, resident=6), 2, "host: stripes of 1,024 rows, 32 rounds of 2,048 vertices, 4 slots, 6 stripes "
         "stay on the GPU, 2 GPUs, 512 GiB to and from the GPUs"),
        (replace(CUT, symmetric=True), 1, "host, the half above the diagonal: stripes of 1,024 rows, 32 rounds of "
         "2,048 vertices, 4 slots, 0 stripes stay on the GPU, 512 GiB to and from the GPU"),
    ],
)  # fmt: skip
def test_a_plan_says_how_it_streams(streaming: Tiling, devices: int, said: str) -> None:
    plan = replace(PLAN, streaming=streaming, devices=devices)
    assert describe_plan(plan)[-1] == f"  tier    {said}"


def test_a_plan_over_the_store_names_it() -> None:
    cut = Tiling("store", 64, 128, passes=True)
    plan = replace(PLAN, device="cpu", tier="store", streaming=cut, device_memory=0)
    assert describe_plan(plan)[-1] == (
        "  tier    store: stripes of 64 rows, two passes over 512 panels of 128 rows, 512 GiB to and from the store"
    )
