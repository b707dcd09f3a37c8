"""Measures of the rows of a prepared graph: rows are computed from its tables, so nothing is searched or solved."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Unpack

from engine.api.from_tables.bands import reduce_bands
from engine.api.from_tables.on_device import DevicePreparedMatrix
from engine.api.from_tables.shares import MemoryShares, memory_shares, smaller
from engine.api.measuring import MeasureTable, bounds_on_paper
from engine.api.prepared_matrix import PreparedMatrix
from engine.execution.survey import survey
from engine.graph.selection import Rectangle
from engine.model.dtypes import work_type
from engine.model.plan import Phase, Plan
from engine.model.problem import Options, given_options, refuse_semiring
from engine.model.progress import Monitor, PhaseClock, given_monitor
from engine.rows.asked_measures import AskedMeasures, MeasureRequest, asked_measures, table_bytes
from engine.rows.measures import MeasureSink
from storage.errors import InvalidRequest

#: Processor seconds for an entry of a row that is computed part by part (_SWEPT), and for an entry of a row that is
#: computed by merging lines (_MERGED); decisions 123 and 134.
_SWEPT: Final = 4.3e-9
_MERGED: Final = 18e-9


class PreparedMeasurement:
    """A request for measures of a prepared graph: the constructor checks it, :meth:`run` computes them.

    Args:
        matrix: the prepared graph; it stays open.
        options: ``sources``, ``targets``, ``cutoff``, ``memory`` and ``threads``.  The type is that of the tables.  If
            no cutoff is given, that of the tables applies.
        request: the measures.

    Raises:
        InvalidRequest: the options or the measures make no sense, together or for this graph.
    """

    def __init__(
        self, matrix: PreparedMatrix, options: Options | None = None, **request: Unpack[MeasureRequest]
    ) -> None:
        self._matrix, options = matrix, given_options(options)
        self.asked: AskedMeasures = asked_measures(matrix.n, matrix.least_weight, request)
        _check(matrix, options, self.asked)
        self._memory, inward = smaller(options.memory, matrix.memory), self.asked.direction == "in"
        sides = (options.targets, options.sources) if inward else (options.sources, options.targets)
        targets = None if sides[1] is None else tuple(sorted(sides[1]))
        self._rectangle = Rectangle.of(replace(options, sources=sides[0], targets=targets), matrix.n)
        self._threads = options.threads

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return len(self._rectangle.rows)

    @property
    def bytes(self) -> int:
        """The bytes of memory that the table takes."""
        return table_bytes(self.rows, self.asked.columns)

    def make_plan(self, monitor: Monitor | None = None) -> Plan:
        """Return the plan; its ``shape`` is that of the matrix, although no matrix is made.

        Args:
            monitor: not used; ``Measurement.make_plan`` has the same parameter.

        Raises:
            DoesNotFit: the tables and the table of measures do not fit in memory.
        """
        del monitor
        with self._matrix.using(self._threads):
            return self._planned(self._shared())

    def _shared(self) -> MemoryShares:
        """Return how memory is divided among tables, rows and measures.  Raises DoesNotFit."""
        matrix = self._matrix
        machine = survey(memory=self._memory, threads=matrix.threads)
        return memory_shares(matrix, self.rows, machine.memory, self.bytes, "measures")

    def _planned(self, shares: MemoryShares) -> Plan:
        matrix, columns = self._matrix, len(self._rectangle.columns)
        on_device = isinstance(matrix, DevicePreparedMatrix) and matrix.exact
        seconds = self.rows * columns * (_SWEPT if matrix.exact else _MERGED) / matrix.threads
        cutoff = self._rectangle.cutoff
        return Plan(
            algorithm="prepared",
            dtype=matrix.dtype.name,
            device="cuda" if on_device else "cpu",
            threads=matrix.threads,
            shape=(self.rows, columns),
            memory=shares.needed,
            disk=0,
            seconds=seconds,
            reason=f"rows are {'swept' if matrix.exact else 'merged'} from the tables, and nothing is searched",
            dtype_reason="the type of the tables",
            device_reason=f"the prepared graph was opened for {'a GPU' if on_device else 'processors'}",
            phases=(Phase("measure", seconds),),
            cutoff=matrix.attributes["cutoff"] if cutoff is None else cutoff,
        )

    def run(self, monitor: Monitor | None = None) -> MeasureTable:
        """Compute all rows from the tables, and keep only their measures.

        Args:
            monitor: receives progress, and is asked whether to stop.

        Raises:
            Cancelled: the monitor asked to stop.
            DoesNotFit: the tables and the table of measures do not fit in memory.
            SolveFailed: the sum of some row is not finite.
            StorageFailed: a table is damaged.
        """
        matrix, rectangle = self._matrix, self._rectangle
        kind, asked = work_type(matrix.dtype), self.asked
        bounds = bounds_on_paper(asked, matrix.graph(), kind.name) if asked.within and not kind.integer else None
        sink = MeasureSink(rectangle, kind, asked, bounds)
        clock = PhaseClock(given_monitor(monitor))
        clock.begin("measure", self.rows, "rows")
        inward = self.asked.direction == "in"
        with matrix.using(self._threads), matrix.holding(shares := self._shared()):
            plan = self._planned(shares)
            if not (isinstance(matrix, DevicePreparedMatrix) and matrix.reduce(rectangle, sink, clock, inward=inward)):
                reduce_bands(matrix, rectangle, sink.gather, clock, inward=inward)
        clock.stop()
        named, columns = self.asked.vertex_columns, sink.columns()
        return MeasureTable(matrix.labels, rectangle.rows, columns, named, plan, clock.seconds, matrix.unit)


def _check(matrix: PreparedMatrix, options: Options, asked: AskedMeasures) -> None:
    """Raise InvalidRequest if the tables cannot answer with these options and measures."""
    refuse_semiring(options, "a prepared graph")
    if options.max_hops is not None:
        raise InvalidRequest("the tables of a prepared graph do not know how many arcs a path has", field="max_hops")
    if options.device == "cuda" and not isinstance(matrix, DevicePreparedMatrix):
        raise InvalidRequest(
            "device cuda was asked for, and the prepared graph was opened for processors: open it with "
            'apsp.open(path, device="cuda")',
            field="device",
        )
    if options.executor != "local":
        raise InvalidRequest(
            f"measures are taken by this process, not by executor {options.executor}", field="executor"
        )
    if options.algorithm not in ("auto", "prepared"):
        message = f"rows are swept from the tables; for algorithm {options.algorithm} measure the graph file instead"
        raise InvalidRequest(message, field="algorithm")
    if options.dtype not in ("auto", matrix.dtype.name):
        message = f"the tables are of {matrix.dtype.name}, and dtype {options.dtype} was asked for"
        raise InvalidRequest(message, field="dtype")
    kept = matrix.attributes["cutoff"]
    if kept is None:
        return
    largest = max((*asked.within, options.cutoff or 0.0))
    if largest > kept:
        field = "cutoff" if options.cutoff is not None and options.cutoff > kept else "within"
        raise InvalidRequest(
            f"{matrix.path} was prepared with cutoff {kept:.15g} and knows no longer distances; {largest:.15g} was "
            "asked for",
            field=field,
        )
