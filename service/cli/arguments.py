"""Options that several commands of ``apsp`` take, each with its type and its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

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
Source = Annotated[
    str | None, typer.Option("--from", metavar="COLUMN", help="Column of the arcs' sources: its name, or its number.")
]
Target = Annotated[str | None, typer.Option("--to", metavar="COLUMN", help="Column of the arcs' targets, likewise.")]
LabelsOf = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="ATTRIBUTE",
        help="Attribute that names vertices instead of the id (GML, GraphML, GEXF, Pajek, JSON).",
    ),
]
LengthOf = Annotated[
    str | None,
    typer.Option(metavar="FORMULA", help="Lengths made of a column: '1000 - score', '1 / weight', '-log(p)'."),
]
CentroidsThrough = Annotated[
    bool, typer.Option("--centroids-through", help="TNTP: let paths pass through zone centroids.")
]
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


@dataclass(frozen=True)
class ReadingOptions:
    """How a graph file is to be read: the options of every command that takes one, as ``read_graph`` takes them."""

    format: Format = None
    directed: Directed = None
    weight: Weight = None
    length_of: LengthOf = None
    unweighted: Unweighted = False
    source: Source = None
    target: Target = None
    labels: LabelsOf = None
    centroids_through: CentroidsThrough = False


def reads_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter ``reading`` by the options of :class:`Reading`."""
    own, options = get_type_hints(command, include_extras=True), get_type_hints(ReadingOptions, include_extras=True)
    defaults = {field.name: field.default for field in fields(ReadingOptions)}

    @wraps(command)
    def run(**given: Any) -> None:
        reading = ReadingOptions(**{name: given.pop(name) for name in defaults})
        command(reading=reading, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "reading":
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [
                inspect.Parameter(option, kind, default=default, annotation=options[option])
                for option, default in defaults.items()
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[name]))
    # Typer reads these attributes; ``__wrapped__`` would lead it to the original command.
    vars(run).pop("__wrapped__")
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
