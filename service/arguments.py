"""Options that several commands of ``apsp`` take, each with its type and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH", help="Graph file: plain, .gz or .zst.", show_default=False)]
StoreFolder = Annotated[
    str, typer.Argument(metavar="STORE.zarr", help="A solved matrix: a folder, or s3://BUCKET/...", show_default=False)
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="s3://BUCKET/PREFIX of graphs and results; else APSP_STORE_URL."),
]
Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help="Format of GRAPH; else told by content.")]
Directed = Annotated[
    bool | None,
    typer.Option("--directed/--undirected", help="Direction of the arcs; else as the format declares, or directed."),
]
Weight = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of weights: its name, or its number from 1.")
]
Unweighted = Annotated[bool, typer.Option("--unweighted", help="Every arc counts 1, whatever the file says.")]
Dtype = Annotated[Literal["auto", "uint16", "int32", "float32", "float64"], typer.Option(help="Type of the distances.")]
Algorithm = Annotated[
    Literal[
        "auto",
        "dijkstra",
        "johnson",
        "partitioned",
        "recursive-floyd-warshall",
        "blocked-floyd-warshall",
        "repeated-squaring",
        "bellman-ford",
        "bfs",
    ],
    typer.Option(help="How to solve; auto lets the planner choose."),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to solve.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Host memory to use at most, such as 4GiB or 500M.")]
DeviceMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="Device memory to use at most.")]
MaxHops = Annotated[int | None, typer.Option(metavar="K", min=1, help="Only paths of at most K arcs.")]
Sources = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE|-", help="Only these rows: names with commas, @FILE or FILE of one name a line, -."
    ),
]
Targets = Annotated[str | None, typer.Option(metavar="LIST|FILE|-", help="Only these columns, named likewise.")]
Cutoff = Annotated[float | None, typer.Option(metavar="DISTANCE", help="Only distances up to this one.")]
Threads = Annotated[int | None, typer.Option(metavar="N", min=1, help="Threads; else all processors.")]
Executor = Annotated[
    Literal["local", "dask"], typer.Option(help="Who solves: this process, or the workers of a Dask scheduler.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of the Dask scheduler, such as tcp://node0:8786.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
