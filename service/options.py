"""Declares the options of a solve once; the command line, the API, the client and the pages take them from here.

The engine takes ``engine.model.problem.Options``, in which vertices are indices and sizes are bytes.  The type of an
algorithm is any text here, because the names are in ``engine.model.algorithms``, and the client must not import the
engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from storage.options import Option, ReadingOptions
from storage.semirings import MIN_PLUS, SemiringName

#: bytes, or a text such as ``4GiB``
Size = int | str | None
#: vertices as the file names them; on the command line and in forms, a text that lists them
Vertices = list[Any] | None
Compression = Literal["none", "zstd"]
#: a list of numbers (``Numbers``) or names (``Words``); on the command line and in forms, a text with commas
Numbers = list[float] | None
Words = list[str] | None
#: opportunities or demands: a file, a table or columns; in a request to the service, the id of an uploaded table, or
#: columns
Opportunities = Any
#: where a graph is solved or prepared
Executor = Annotated[
    Literal["local", "dask"],
    Option("Where to solve: in this process, or by the workers of a Dask scheduler.", default="local",
           in_api="Where to solve: in the runner, or by the workers of the service's Dask scheduler."),
]  # fmt: skip
Scheduler = Annotated[str | None, Option("Address of the Dask scheduler, such as tcp://node0:8786.", metavar="ADDRESS")]

Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    Option("Where to solve.", default="auto", label="Solve on",
           in_form="By default the faster one.",
           titles={"auto": "whatever is faster", "cpu": "the processors", "cuda": "a GPU"}),
]  # fmt: skip
DeviceMemory = Annotated[
    Size, Option("Device memory to use at most.", metavar="SIZE", in_api="Device memory in bytes.")
]


class BulkOptions(TypedDict, total=False):
    """The options that a solve of one graph and a solve of many graphs share."""

    dtype: Annotated[
        Literal["auto", "uint16", "int32", "float32", "float64"],
        Option("Type of the distances.", default="auto", label="Numbers are kept as",
               in_form="The narrowest type that is exact is taken unless you say otherwise.",
               titles={"auto": "the smallest exact type", "uint16": "16-bit integers",
                       "int32": "32-bit integers", "float32": "32-bit floats", "float64": "64-bit floats"}),
    ]  # fmt: skip
    device: Device
    memory: Annotated[
        Size,
        Option("Host memory to use at most, such as 4GiB or 500M.", metavar="SIZE", in_api="Host memory in bytes.",
               label="Memory at most", in_form="Host memory, such as 4GiB.", hint="what is free"),
    ]  # fmt: skip
    device_memory: DeviceMemory
    max_hops: Annotated[
        int | None,
        Option("Only paths of at most K arcs.", metavar="K", least=1, in_api="Most arcs of a path.",
               label="Most arcs of a path", in_form="Counts arcs, not weights.", hint="no limit"),
    ]  # fmt: skip
    threads: Annotated[int | None, Option("Threads; else all processors.", metavar="N", least=1, in_api="Processors.")]


class SolveOptions(BulkOptions, total=False):
    """The options of a solve of one graph."""

    algorithm: Annotated[
        str,
        Option("How to solve; auto lets the planner choose.", default="auto", in_api="Name of an algorithm, or auto.",
               label="Algorithm", in_form="The plan says which one is fastest, and why.",
               titles={"auto": "the fastest"}),
    ]  # fmt: skip
    sources: Annotated[
        Vertices,
        Option("Only these rows: names with commas, @FILE or FILE of one name a line, -.", metavar="LIST|FILE|-",
               in_api="Only these rows; vertices as in the file, or all points, each of which means the vertex nearest "
                      "to it.",
               label="From", in_form="Rows of the matrix. Vertices as the file names them, with commas.",
               hint="every vertex"),
    ]  # fmt: skip
    targets: Annotated[
        Vertices,
        Option("Only these columns, named in the same way.", metavar="LIST|FILE|-",
               in_api="Only these columns; vertices as in the file, or all points.",
               label="To", in_form="Columns of the matrix. Vertices as the file names them, with commas.",
               hint="every vertex"),
    ]  # fmt: skip
    cutoff: Annotated[
        float | None,
        Option("Only distances up to this one.", metavar="DISTANCE", least=0,
               in_api="Only distances up to this one; longer ones become unreachable.",
               label="No farther than", in_form="Longer distances count as no path.", hint="no limit"),
    ]  # fmt: skip
    semiring: Annotated[
        SemiringName,
        Option("What the best path is: shortest (min-plus), widest (max-min), of the lowest pass (min-max), most "
               "reliable (max-times), or any (lor-land).", default=MIN_PLUS,
               in_api="What the best path is: min-plus the shortest, max-min the widest, min-max that of the lowest "
                      "pass, max-times the most reliable, lor-land any. For max-min and max-times the graph is "
                      "uploaded with parallel=greatest.",
               label="Best path", in_form="Shortest paths add weights up; the others take the least, the greatest or "
                                          "the product.",
               titles={MIN_PLUS: "the shortest", "max-min": "the widest (max-min)",
                       "min-max": "the lowest pass (min-max)", "max-times": "the most reliable (max-times)",
                       "lor-land": "any (lor-land: reachability)"}),
    ]  # fmt: skip
    executor: Executor


class LocalOptions(SolveOptions, total=False):
    """The options of a solve by the command line itself."""

    scheduler: Scheduler


class AlsoOptions(LocalOptions, total=False):
    """The options of a solve by the command line, and ``also``: further columns to sum along the shortest paths."""

    also: Annotated[
        str | None,
        Option("Sum these columns of GRAPH along the shortest paths, too: names with commas.", metavar="COLUMNS"),
    ]


class TableOptions(TypedDict, total=False):
    """The options of a job whose result is a table: measures, near pairs, betweenness or flows."""

    measures: Annotated[
        Words,
        Option("Of --result measures, which, with commas: reached, sum, mean, closeness, closeness_plain, harmonic, "
               "eccentricity, farthest; else all.", metavar="LIST",
               in_api="Of result measures: names of measures; all if left out.",
               label="Measures", in_form="Of a table of measures: reached, closeness and others, with commas.",
               hint="all"),
    ]  # fmt: skip
    direction: Annotated[
        Literal["out", "in"] | None,
        Option("Of --result measures: a row for each source, or for each target.",
               in_api="Of result measures: out has a row for each source, in for each target; out if left out.",
               label="A row for", in_form="In from every vertex, or out to every vertex.",
               titles={"": "each source", "in": "each target"}),
    ]  # fmt: skip
    within: Annotated[
        Numbers,
        Option("Of --result measures: count vertices within these distances, such as 15,30.", metavar="DISTANCES",
               in_api="Of result measures: distances within which vertices are counted and opportunities summed.",
               label="Count within", in_form="Of a table of measures: distances, such as 15,30.", hint="none"),
    ]  # fmt: skip
    quantiles: Annotated[
        Numbers,
        Option("Of --result measures: quantiles of the distances, such as 0.5,0.9.", metavar="SHARES",
               in_api="Of result measures: shares from 0 to 1.",
               label="Quantiles", in_form="Of a table of measures: shares, such as 0.5,0.9.", hint="none"),
    ]  # fmt: skip
    nearest: Annotated[
        int | None,
        Option("Of --result measures and near: the K nearest vertices.", metavar="K", least=1,
               in_api="Of result measures: how many nearest vertices are named; of near: how many are kept.",
               label="Nearest", in_form="Of measures and near pairs: how many nearest vertices.", hint="no limit"),
    ]  # fmt: skip
    prepared: Annotated[
        str | None,
        Option("Of --result measures and near: rows come from the tables of this job, which has prepared the graph.",
               metavar="JOB", longest=100,
               in_api="Of results measures and near: the id of a job that has prepared the same graph; rows come from "
                      "its tables, and nothing is searched where they are cheaper.",
               label="From the tables of", in_form="Of measures and near pairs: the id of a job that has prepared this "
                                                   "graph.", hint="none, but a search"),
    ]  # fmt: skip
    opportunities: Annotated[
        Opportunities,
        Option("Of --result measures, CSV or Parquet: vertex, then numbers that are summed within the distances.",
               metavar="FILE",
               in_api="Of result measures: the id of an uploaded table, or vertices and columns of numbers.",
               label="Opportunities", in_form="A table (CSV, Parquet): vertex, then numbers, which are summed within "
                                              "the distances.", hint="id of a table"),
    ]  # fmt: skip
    columns: Annotated[
        Words,
        Option("Columns of --opportunities to sum; else all but the first.", metavar="LIST",
               in_api="Columns of the opportunities that are summed; all if left out."),
    ]  # fmt: skip
    decay: Annotated[
        Literal["step", "exponential", "linear", "logistic"] | None,
        Option("Of --result measures: how an opportunity fades with distance.",
               in_api="How an opportunity fades with distance; step if left out.",
               label="Opportunities fade", in_form="Within each distance.",
               titles={"": "as a step, at the distance", "exponential": "exponentially", "linear": "linearly",
                       "logistic": "logistically"}),
    ]  # fmt: skip
    decay_value: Annotated[
        float | None,
        Option("Width of a linear decay, standard deviation of a logistic one.", metavar="DISTANCE",
               in_api="Width of a linear decay, standard deviation of a logistic one.",
               label="Width of fading", in_form="Of a linear decay; of a logistic one its standard deviation."),
    ]  # fmt: skip
    of: Annotated[
        Literal["vertices", "arcs"] | None,
        Option("Of --result betweenness and flows: a row for each vertex, or for each arc.",
               in_api="Of results betweenness and flows: a row for each vertex, or for each arc; betweenness is of "
                      "vertices if left out, and flows are of arcs.",
               label="A row for each", in_form="Betweenness is of vertices, and flows are of arcs, unless you say "
                                               "otherwise.",
               titles={"": "as usual", "vertices": "vertex", "arcs": "arc"}),
    ]  # fmt: skip
    raw: Annotated[
        bool | None,
        Option("Of --result betweenness: numbers of pairs, not shares of all pairs.", flags=("--raw",),
               in_api="Of result betweenness: numbers of pairs, not shares of all pairs.",
               label="Betweenness counts", in_form="Shares are of all pairs of vertices.",
               titles={"": "shares of all pairs", "true": "numbers of pairs"}),
    ]  # fmt: skip
    endpoints: Annotated[
        bool | None,
        Option("Of --result betweenness: a path passes through its ends, too.", flags=("--endpoints",),
               in_api="Of result betweenness, of vertices: whether a path passes through its ends, too."),
    ]  # fmt: skip
    demands: Annotated[
        Opportunities,
        Option("Of --result flows, CSV or Parquet: origin, destination, flow.", metavar="FILE",
               in_api="Of result flows: the id of a table uploaded as demands, or origins, destinations and flows.",
               label="Demands", in_form="A table (CSV, Parquet): origin, destination, flow.", hint="id of a table"),
    ]  # fmt: skip
    flow: Annotated[
        str | None,
        Option("Column of --demands that says how much; else the third.", metavar="COLUMN", longest=200,
               in_api="Column of an uploaded table of demands that says how much; the first of its numbers if left "
                      "out.",
               label="Column of the flow", in_form="Of the demands.", hint="the first of numbers"),
    ]  # fmt: skip


class JobOptions(SolveOptions, TableOptions, total=False):
    """The options of a job of the service, as docs/api.md describes them."""

    result: Annotated[
        Literal["matrix", "prepared", "measures", "near", "betweenness", "flows"],
        Option("The matrix; a prepared graph, whose tables answer every distance; or a table: of measures, near pairs, "
               "betweenness, or the flows of demands.",
               default="matrix",
               in_api="The matrix; a prepared graph: tables from which every distance is computed when it is asked; "
                      "a table of measures, with a row for each vertex; near pairs, with a row for each; betweenness, "
                      "with a row for each vertex or arc; or flows: demands assigned to shortest paths.",
               label="Result", in_form="A prepared graph is far smaller where separators are small, as of roads; "
                                       "tables of measures and near pairs are made without any matrix.",
               titles={"matrix": "the matrix", "prepared": "a prepared graph", "measures": "a table of measures",
                       "near": "near pairs", "betweenness": "betweenness", "flows": "flows of demands"}),
    ]  # fmt: skip

    also: Annotated[
        Words,
        Option("Sum these columns of GRAPH along the shortest paths, too: names with commas.", metavar="COLUMNS",
               in_api="Sum these quantities of the graph along the shortest paths; its upload named their columns.",
               label="Sum along the paths", in_form="Quantities of this graph, with commas.", hint="none"),
    ]  # fmt: skip
    snap_limit: Annotated[
        float | None,
        Option("Refuse points of --sources and --targets that are farther than this from a vertex: metres, or units of "
               "the plane.", metavar="DISTANCE", least=0,
               in_api="Refuse points among sources and targets that are farther than this from a vertex: metres, or "
                      "units of the plane."),
    ]  # fmt: skip
    priority: Annotated[
        int,
        Option("Higher goes first.", default=0, least=-100, most=100, in_api="Jobs of higher priority run first.",
               label="Priority", in_form="From -100 to 100; higher goes first.", hint="0"),
    ]  # fmt: skip
    fresh: Annotated[
        bool,
        Option("Solve again even if there is a result.", default=False,
               in_api="Solve again even if there is a result of the same graph and options."),
    ]  # fmt: skip


class UploadOptions(ReadingOptions, total=False):
    """The options that say how to read a graph that a client uploads."""

    also: Annotated[Words, Option("Further columns, which jobs can sum along the paths.")]


class ClientOptions(ReadingOptions, JobOptions, total=False):
    """The arguments of a client's methods ``solve`` and ``submit``, besides the graph."""

    name: Annotated[
        str | None,
        Option("A name for graph and job.", metavar="TEXT", label="Name of the job",
               in_form="To find it again.", hint="the graph's name"),
    ]  # fmt: skip


CompactForm = Annotated[
    bool, Option("Store closed parts only: a tenth of the bytes, and slower to ask.", default=False)
]


class PrepareOptions(TypedDict, total=False):
    """The options of ``apsp prepare``."""

    dtype: Annotated[
        Literal["auto", "uint16", "int32", "float32", "float64"], Option("Type of the distances.", default="auto")
    ]
    cutoff: Annotated[float | None, Option("Only distances up to this one.", metavar="DISTANCE", least=0)]
    memory: Annotated[Size, Option("Host memory to use at most, such as 4GiB or 500M.", metavar="SIZE")]
    threads: Annotated[int | None, Option("Threads; else all processors.", metavar="N", least=1)]
    executor: Executor
    scheduler: Scheduler


class PrepareForm(PrepareOptions, total=False):
    """The options of ``apsp prepare`` that ``apsp reweight`` does not have."""

    compact: CompactForm


class PlannedForm(TypedDict, total=False):
    """The options of ``apsp plan`` for planning a prepared graph in place of a matrix."""

    prepared: Annotated[bool, Option("Plan apsp prepare, which makes no matrix.", default=False)]
    compact: CompactForm


class ReweightOptions(PrepareOptions, total=False):
    """The options of ``apsp reweight``."""

    changed: Annotated[bool, Option("FILE lists only arcs with new weights; the others keep theirs.", default=False)]


class MeasureOptions(TypedDict, total=False):
    """The options of ``apsp measure`` that say what is measured."""

    measures: Annotated[
        str | None,
        Option("Measures, with commas: reached, sum, mean, closeness, closeness_plain, harmonic, eccentricity, "
               "farthest; else all.", metavar="LIST"),
    ]  # fmt: skip
    direction: Annotated[
        Literal["out", "in"],
        Option("A row for each source, or for each target; in is NetworkX's for closeness.", default="out"),
    ]
    within: Annotated[
        str | None, Option("Count vertices within these distances, such as 15,30,45.", metavar="DISTANCES")
    ]
    quantiles: Annotated[str | None, Option("Quantiles of the distances, such as 0.5,0.9.", metavar="SHARES")]
    nearest: Annotated[int, Option("The K nearest vertices, with their distances.", default=0, metavar="K", least=0)]
    opportunities: Annotated[
        Path | None,
        Option("CSV or Parquet: vertex, then numbers that are summed within the distances.", metavar="FILE"),
    ]
    columns: Annotated[str | None, Option("Columns of --opportunities to sum; else all but the first.", metavar="LIST")]
    decay: Annotated[
        Literal["step", "exponential", "linear", "logistic"],
        Option("How an opportunity fades with distance; a distance of --within is then half-life or middle.",
               default="step"),
    ]  # fmt: skip
    decay_value: Annotated[
        float | None, Option("Width of a linear decay, standard deviation of a logistic one.", metavar="DISTANCE")
    ]


class NearOptions(TypedDict, total=False):
    """The options of ``apsp near``."""

    cutoff: Annotated[float | None, Option("Only distances up to this one.", metavar="DISTANCE", least=0)]
    nearest: Annotated[int | None, Option("Only the K nearest targets of each source.", metavar="K", least=1)]
    sources: Annotated[
        Vertices,
        Option("Only these sources: names with commas, @FILE or FILE of one name a line, -.", metavar="LIST|FILE|-"),
    ]
    targets: Annotated[Vertices, Option("Only these targets, named in the same way.", metavar="LIST|FILE|-")]
    memory: Annotated[Size, Option("Host memory to use at most, such as 4GiB or 500M.", metavar="SIZE")]
    threads: Annotated[int | None, Option("Threads; else all processors.", metavar="N", least=1)]
