"""The parameters that several commands of ``apsp`` share, and a decorator that makes parameters of declared options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict, get_type_hints, is_typeddict

import typer

from engine.model.algorithms import ALGORITHMS
from service.cli.passage_options import AssignOptions, BetweennessOptions, PassageOptions
from service.options import (
    AlsoOptions,
    BulkOptions,
    Compression,
    JobOptions,
    LocalOptions,
    MeasureOptions,
    Numbers,
    Opportunities,
    PlannedForm,
    PrepareForm,
    PrepareOptions,
    Size,
    SolveOptions,
    Vertices,
    Words,
)
from storage.options import ArcReadingOptions, FileReadingOptions, Option, ReadingOptions, declared, flag_of

GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH", help="Graph file: plain, .gz or .zst.", show_default=False)]
StoreFolder = Annotated[
    str, typer.Argument(metavar="STORE.zarr", help="A solved matrix: a folder, or s3://BUCKET/...", show_default=False)
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="s3://BUCKET/PREFIX of graphs and results; else APSP_STORE_URL."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
TileCompression = Annotated[Compression, Option("Compression of the stored tiles.", default="none")]


class OutputOptions(TypedDict, total=False):
    """How ``apsp solve`` writes its store."""

    compression: TileCompression
    overwrite: Annotated[bool, Option("Replace STORE.zarr once the new one is done.", default=False)]
    resume: Annotated[bool, Option("Continue a stopped solve of the same matrix into STORE.zarr.", default=False)]
    work: Annotated[
        Path | None, Option("Working folder if --out is s3://...; else ~/.cache/apsp/work.", metavar="FOLDER")
    ]


class BulkOutputOptions(TypedDict, total=False):
    """Where ``apsp solve-many`` writes, and how."""

    out: Annotated[Path | None, Option("Folder of the stores, one for each graph: NAME.zarr.", metavar="FOLDER")]
    summary: Annotated[Path | None, Option("Table with a row for each graph: .csv, or .jsonl.", metavar="FILE")]
    compression: TileCompression
    overwrite: Annotated[bool, Option("Solve graphs again that have a store, and replace it.", default=False)]


def must_open(graph: Path) -> None:
    """Refuse a file that cannot be opened, before the slow import of the readers.

    A pipe is not tried, because it can be opened only once.
    """
    from storage.errors import NotFound

    try:
        if not graph.is_fifo():
            graph.open("rb").close()
    except IsADirectoryError as error:
        raise NotFound(
            f"{graph} is a folder, and a graph is a file; of a solved matrix or a prepared graph, "
            f"apsp query {graph} summary shows what it holds"
        ) from error
    except OSError as error:
        raise NotFound(f"cannot open {graph}: {error.strerror or error}") from error


def start_device(options: AlsoOptions) -> None:
    """Start the CUDA driver in a thread if a GPU is wanted.

    The driver starts while packages are imported and a graph is read.
    """
    if options["device"] == "cuda":
        from engine.devices.cuda.starting import start_driver

        start_driver()


FeatureOption = Annotated[
    Literal["lines", "sources", "targets"] | None,
    Option("Features of .geojson and .gpkg, or of GeoParquet in .parquet: lines, or points at sources or targets."),
]


class PointOptions(TypedDict, total=False):
    """The options for points of a table, each of which is snapped to the vertex nearest to it."""

    snap_limit: Annotated[
        float | None,
        Option("Refuse points of tables that are farther than this from a vertex: metres, or units of the plane.",
               metavar="DISTANCE"),
    ]  # fmt: skip


class GraphOptions(FileReadingOptions, PointOptions, total=False):
    """How a graph file is read, and how points are snapped to its vertices."""


class MapOptions(TypedDict, total=False):
    """The options of ``apsp plot --map``."""

    map: Annotated[bool, Option("Draw the network, coloured by distance.", default=False, flags=("--map",))]
    source: Annotated[str | None, Option("Draw distances from this vertex.", flags=("--from",), metavar="VERTEX")]
    target: Annotated[str | None, Option("Draw the route to this vertex, too.", flags=("--to",), metavar="VERTEX")]
    classes: Annotated[
        str | None, Option("A colour for each class up to these distances, such as 5,10,15.", metavar="DISTANCES")
    ]
    points: Annotated[
        list[Path] | None, Option("Vertices may be points of this table with lon and lat; may be repeated.",
                                  metavar="FILE"),
    ]  # fmt: skip
    dark: Annotated[bool, Option("For a dark page.", default=False, flags=("--dark",))]


class PairOptions(TypedDict, total=False):
    """How ``apsp near`` writes."""

    overwrite: Annotated[bool, Option("Replace FILE once the new one is done.", default=False)]
    features: FeatureOption


class ExportOptions(TypedDict, total=False):
    """What ``apsp export`` writes."""

    sources: Annotated[Vertices, Option("Only these rows, named as for apsp solve.", metavar="LIST|FILE|-")]
    targets: Annotated[Vertices, Option("Only these columns, named in the same way.", metavar="LIST|FILE|-")]
    within: Annotated[float | None, Option("Only distances up to this one.", metavar="DISTANCE")]
    nearest: Annotated[
        int | None, Option("Only the K nearest targets of each source, without itself.", metavar="K", least=1)
    ]
    itself: Annotated[
        bool, Option("A source that is a target is among its own nearest ones.", flags=("--itself",), default=False)
    ]
    wide: Annotated[
        bool,
        Option("A column for each target instead of a line for each entry.", flags=("--wide",), default=False),
    ]
    also: Annotated[
        str | None,
        Option("The sums of this quantity in place of distances: for --wide and .npy.", metavar="NAME"),
    ]
    features: FeatureOption


class AnswerOptions(TypedDict, total=False):
    """Where ``apsp query``, ``apsp export`` and ``apsp serve-routes`` compute the answers of a prepared graph."""

    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Option("Where a prepared graph is answered: cuda, a GPU that holds its tables; auto, there if it can.",
               default="cpu"),
    ]  # fmt: skip
    device_memory: Annotated[Size, Option("Device memory to use at most, such as 4GiB or 500M.", metavar="SIZE")]


#: Heading, on a help page, of the options that a class declares; all other options are below "Options".
_HEADINGS: Final = {
    ArcReadingOptions: "How FILE is read",
    ReadingOptions: "How GRAPH is read",
    FileReadingOptions: "How GRAPH is read",
    GraphOptions: "How GRAPH is read",
    PointOptions: "What is written",
    BulkOptions: "How it is solved",
    LocalOptions: "How it is solved",
    AlsoOptions: "How it is solved",
    JobOptions: "How it is solved",
    PlannedForm: "How it is solved",
    PrepareForm: "How it is solved",
    PrepareOptions: "How it is solved",
    SolveOptions: "How it is solved",
    MeasureOptions: "What is measured",
    BetweennessOptions: "What is counted",
    AssignOptions: "What is assigned",
    PassageOptions: "How it is solved",
    AnswerOptions: "How it is answered",
    OutputOptions: "What is written",
    BulkOutputOptions: "What is written",
    ExportOptions: "What is written",
    PairOptions: "What is written",
    MapOptions: "A map of the network",
}


class with_options:  # noqa: N801 - a decorator
    """A decorator: a parameter whose type is a class of options becomes one parameter for each option of the class.

    The parameters are made when the signature of a command is first read, so only the command that runs makes them.
    """

    def __init__(self, command: Callable[..., None]) -> None:
        # ``functools.wraps`` is not used: it sets ``__wrapped__``, by which Typer would find the parameters of the
        # original command.
        self._command = command
        self.__name__, self.__qualname__, self.__module__ = command.__name__, command.__qualname__, command.__module__
        self.__doc__ = command.__doc__

    def __call__(self, **given: Any) -> None:
        """Run the command with the values of all options."""
        for group, names in self._made[0].items():
            given[group] = {name: given.pop(name) for name in names}
        self._command(**given)

    @property
    def __signature__(self) -> inspect.Signature:
        return self._made[1]

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {parameter.name: parameter.annotation for parameter in self._made[1].parameters.values()}

    @cached_property
    def _made(self) -> tuple[dict[str, list[str]], inspect.Signature]:
        """The names of the options of each class, and the signature that Typer reads."""
        own = get_type_hints(self._command, include_extras=True)
        groups = {name: list(declared(hint)) for name, hint in own.items() if is_typeddict(hint)}
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(self._command).parameters.items():
            if name in groups:
                heading = _HEADINGS.get(own[name])
                parameters += [_parameter(option, *found, heading) for option, found in declared(own[name]).items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[name]))
        return groups, inspect.Signature(parameters)


def _parameter(name: str, kind: Any, option: Option, heading: str | None) -> inspect.Parameter:
    """Return the parameter from which Typer makes an option.  Sizes and lists are text on the command line."""
    if kind in (Size, Vertices, Numbers, Words):
        kind = str | None
    elif name == "nodes" or kind is Opportunities:
        kind = Path | None
    elif name == "algorithm":
        kind = Literal[("auto", *ALGORITHMS)]
    # The code that uses a cutoff checks it, because Typer's message does not name the wrong value, and Typer accepts
    # NaN.
    least, most = (None, None) if name == "cutoff" else (option.least, option.most)
    shown = typer.Option(
        flag_of(name, option), metavar=option.metavar, help=option.help, min=least, max=most, rich_help_panel=heading
    )
    annotation = Annotated[kind, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
