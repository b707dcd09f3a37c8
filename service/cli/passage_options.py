"""Declares the options of ``apsp betweenness`` and ``apsp assign``, which count shortest paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypedDict

from service.options import Device, DeviceMemory, Size, Vertices
from storage.options import Option


class PassageOptions(TypedDict, total=False):
    """The options of ``apsp betweenness`` and ``apsp assign`` about memory, threads, and replacing a file."""

    overwrite: Annotated[bool, Option("Replace FILE once the new one is done.", flags=("--overwrite",), default=False)]
    memory: Annotated[Size, Option("Host memory to use at most, such as 4GiB or 500M.", metavar="SIZE")]
    threads: Annotated[int | None, Option("Threads; else all processors.", metavar="N", least=1)]


class BetweennessOptions(TypedDict, total=False):
    """The options of ``apsp betweenness`` that say what is counted."""

    of: Annotated[Literal["vertices", "arcs"], Option("A row for each vertex, or for each arc.", default="vertices")]
    raw: Annotated[bool, Option("Numbers of pairs, not shares of all pairs.", flags=("--raw",), default=False)]
    endpoints: Annotated[bool, Option("A path passes through its ends, too.", flags=("--endpoints",), default=False)]
    sources: Annotated[
        Vertices,
        Option("Only paths from these: names with commas, @FILE or FILE of one name a line, -.",
               metavar="LIST|FILE|-"),
    ]  # fmt: skip
    targets: Annotated[Vertices, Option("Only paths to these, named likewise.", metavar="LIST|FILE|-")]
    device: Device
    device_memory: DeviceMemory


class AssignOptions(TypedDict, total=False):
    """The options of ``apsp assign`` that say what is assigned, and what is written."""

    flow: Annotated[str | None, Option("Column of --demands that says how much; else the third.", metavar="COLUMN")]
    of: Annotated[Literal["arcs", "vertices"], Option("A row for each arc, or for each vertex.", default="arcs")]
    unreachable: Annotated[Path | None, Option("Write the demands without a path: .parquet or .csv.", metavar="FILE")]
