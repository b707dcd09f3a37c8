"""Rates measured on this machine and on this graph, so that predictions rest on more than a table.

No rate is kept from one plan to the next, because rates depend on the other work of the machine.  The rows that trial
searches find are kept for the solve, which need not search them again.  The trials measure processor time, divided by
the threads, so that another process cannot make one algorithm look slower than another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from engine.execution.rates import with_rates
from engine.execution.search_cuda import ALGORITHMS as SEARCHES
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle
from engine.model.algorithms import ALGORITHMS
from engine.model.backend import Arcs
from engine.model.device_layout import form_of
from engine.model.dtypes import WORK_TYPES, WorkType
from engine.model.plan import Candidate, Plan
from engine.model.problem import Machine, Problem, Trials
from engine.model.progress import NotCompiledError, only_ready
from engine.model.rows import KnownRows
from engine.planning.constants import HEAP_BELOW, HOP_SOURCES, HOP_SOURCES_LEAST, LANE_BYTES
from engine.planning.cost import search_workspace
from storage.graph.graph import Graph

if TYPE_CHECKING:
    from engine.devices.cpu.backend import CpuBackend

#: If less than this many seconds of work are predicted, nothing is measured: any choice is fast enough.
WORTHWHILE: Final = 0.05
#: Side of the square product that is timed, 2^30 updates: some hundredths of a second.
EDGE: Final = 1024
#: Side of a product that loads the kernels.
TINY: Final = 64
#: Searches on a GPU are tried only if the table predicts less than this many times the seconds of the plan.
CONTENDER: Final = 10
#: If the plan has no products, they are timed only if they are predicted to take less than this many times the seconds
#: of the searches that are left.  The table may predict up to 5 times the seconds that products really take.
RIVAL: Final = 6
#: Searches are tried only if the table predicts less than this many times the plan's seconds.  For searches by weights
#: on graphs that suit products, the table errs by a tenth if weights are evenly distributed, and predicts five times
#: too long if all arcs weigh 1, where breadth-first searches are faster anyway (decision 127).
UNLIKELY: Final = 2
#: PRODUCTS products are timed if the plan consists of products, and FEW_PRODUCTS if they only rival its searches.  No
#: product is timed unless the plan is predicted to take more than TIMED_SHARE times as long as timing them.
PRODUCTS: Final = 4
FEW_PRODUCTS: Final = 2
TIMED_SHARE: Final = 20
#: WASTE: share of the predicted work that trials may waste.  KEPT_ENTRY: processor seconds wasted for each entry of a
#: row that is kept: the entry is written into memory that is new to the process, copied, and read again for facts.
WASTE: Final = 0.05
KEPT_ENTRY: Final = 3e-9
#: If searches are predicted to take this many times as long as the partitioned algorithm, they are not tried.
PARTS_CLEAR: Final = 1.3
#: Trial searches may take about TRIAL seconds, or TRIAL_SHARE of the seconds predicted for the plan if that is less.
TRIAL: Final = 0.1
TRIAL_SHARE: Final = 0.05
#: A trial on a GPU takes up to 0.25 s; it is made only if searches are predicted to take this many seconds or more.
DEVICE_WORTHWHILE: Final = 1.0
#: A trial on a GPU may take a quarter of the steps of a solve (``SearchForm.limit``), but always at least this many.
LEAST_LIMIT: Final = 255
#: A slow trial ends once it has more than this share of the sources; fewer sources lie farther apart than in a solve,
#: so they do not predict its time.
TOLD: Final = 0.005
#: If a solve has AGAIN times the sources of the last trial or more, that trial is repeated from the middle source on.
AGAIN: Final = 40
#: Each further trial has at most this many times the sources of the previous trial.
STEP: Final = 64
#: Bytes that measuring takes in addition to the searches' workspace: rows, tiles in flight, memory of the allocator.
HEADROOM: Final = 256 * 2**20
#: A trial gets enough sources to fill the vectors if these are less than this share of all, or take under LONG_TRIAL.
SHARE: Final = 0.05
#: The largest number of bytes of rows kept for the solve; planning counts them in the memory of the process itself.
MOST_KEPT: Final = 2**26
#: Seconds that enough sources to fill the vectors may take if they are more than SHARE of all sources.
LONG_TRIAL: Final = 0.3
#: Kinds of searches whose kernels this process has loaded.  For other kinds, a trial with one thread loads them first,
#: so that loading is not timed.
_LOADED: Final[set[tuple[object, ...]]] = set()


def calibrate(
    profile: GraphProfile,
    problem: Problem,
    machine: Machine,
    plan: Plan,
    *,
    device: str = "cpu",
    rectangle: Rectangle | None = None,
    out: Path | None = None,
) -> tuple[Machine, Trials | None]:
    """Return ``machine`` with measured rates, and trials of searches, if they decide between the plan's candidates.

    Products on a GPU are predicted from a table, as their rate hardly varies.  The rate of searches on a GPU depends on
    the graph, so a few are tried if searches may be the best choice.  Nothing is measured if ``plan`` leaves no memory
    for it, because a measurement must not be the reason that a plan no longer fits.  Planning does not wait for a
    compiler either: if a measurement needs a kernel that was never compiled, the table is used.

    Args:
        profile: the graph.
        problem: the description of the graph.
        machine: the machine as surveyed.
        plan: the plan that was made with the present rates.
        device: the device that the options name; with ``cuda`` the rates of the processors decide nothing.
        rectangle: the sources and targets asked for; None for all.
        out: path of the store; the rates of its disk are measured and cached (``engine.execution.rates``).  None if no
            store is written.

    Returns:
        The machine, which is ``machine`` itself if no rate was measured, and the trials, None if no search was tried.
    """
    space = HEADROOM + search_workspace(problem.n, problem.arcs, machine.threads)
    if plan.seconds < WORTHWHILE or plan.memory + space > machine.memory:
        return machine, None
    graph, kind = profile.graph, WORK_TYPES[plan.dtype]
    machine = with_rates(machine, kind, plan, out)
    on_device = _tried_on_device(graph, problem, machine, plan)
    if device == "cuda":
        return machine, None if on_device is None else Trials(device_search=on_device)
    searched = rectangle or Rectangle(graph.n, None, None, None)
    if any(c.from_targets for c in plan.candidates):
        searched = searched.transposed  # trials still follow arcs forwards, which takes about as long
    trials = _tried_searches(profile, problem, machine, plan, searched)
    own = [c for c in plan.candidates if c.feasible and c.device == "cpu"]
    products = [c.seconds for c in own if any(p.name == "relax" for p in c.phases)]
    once = EDGE**3 / machine.relax_rate[kind.name]
    asked = any(p.name == "relax" for p in plan.phases)  # timing can then change only the predicted seconds
    tried = min((each for each in (trials.search, trials.hop_search) if each is not None), default=None)
    left = len(searched.rows) - trials.found
    rival = not asked and tried is not None and min(products, default=np.inf) < RIVAL * tried * left
    count = PRODUCTS if asked else FEW_PRODUCTS
    if products and (asked or rival) and plan.seconds > TIMED_SHARE * count * once:
        rate = _if_compiled(relax_rate, kind, machine.threads, count)
        machine = machine if rate is None else replace(machine, relax_rate={kind.name: rate})
    trials = replace(trials, device_search=on_device)
    return machine, None if trials == Trials() else trials


def _tried_searches(
    profile: GraphProfile, problem: Problem, machine: Machine, plan: Plan, searched: Rectangle
) -> Trials:
    """Try searches on the processors, if a trial wastes little and may change the plan; return the measured seconds.

    Args:
        profile: the graph; it keeps the rows.
        problem: the description of the graph.
        machine: the machine.
        plan: the plan that the table predicts.
        searched: sources, targets and cutoff, transposed if searches begin at the targets.
    """
    own = {c.algorithm: c for c in plan.candidates if c.feasible and c.device == "cpu"}
    mine = {name: c for name, c in own.items() if ALGORITHMS[name].searches}
    least = min((c.seconds for c in mine.values()), default=math.inf)
    writing = sum(phase.seconds for phase in plan.phases if phase.name == "write")  # the same for all searches
    clear = plan.algorithm == "partitioned" and PARTS_CLEAR * (plan.seconds - writing) < least - writing
    if problem.max_hops is not None or clear or least >= UNLIKELY * plan.seconds:
        return Trials()
    trial = SearchTrial(
        profile, WORK_TYPES[plan.dtype], machine.threads, searched, min(TRIAL, TRIAL_SHARE * plan.seconds)
    )
    search = hops = None
    singly = min((c.seconds for name, c in mine.items() if name != "bfs"), default=math.inf)
    if "bfs" in mine:
        trial.limit(_most_rows(mine["bfs"], plan, trial, machine, kept=False))
        hops = _if_compiled(trial.seconds, unit=True, bits=True)
        # searches by weights are not tried if the table predicts no gain: its error is the same for both kinds
        if singly >= (mine["bfs"].seconds if hops is None else hops * len(searched.rows)):
            return Trials(None, hops, None, trial.found)
    by_weights = min((c for name, c in mine.items() if name != "bfs"), key=lambda c: c.seconds)
    trial.limit(_most_rows(by_weights, plan, trial, machine, kept=trial.keeps))
    search = _if_compiled(trial.seconds, unit=problem.unit)
    return Trials(search, hops, None, trial.found)


def _most_rows(candidate: Candidate, plan: Plan, trial: SearchTrial, machine: Machine, *, kept: bool) -> int:
    """Return how many rows a trial of ``candidate`` may search without wasting more than ``WASTE`` of the plan.

    Args:
        candidate: the candidate whose searches are tried.
        plan: the plan that the table predicts.
        trial: the trial, which has the rows and columns to search.
        machine: the machine.
        kept: whether the solve will use the rows, so that most of the trial's work is not repeated.
    """
    rows, columns = trial.shape
    most = int(WASTE * rows * min(1.0, plan.seconds / candidate.seconds))  # as if all rows of the trial were discarded
    if kept and ALGORITHMS[plan.algorithm].searches:
        work = machine.threads * sum(phase.seconds for phase in plan.phases if phase.name == "search")
        most = max(most, min(int(WASTE * work / KEPT_ENTRY), MOST_KEPT // WORK_TYPES[plan.dtype].itemsize) // columns)
    return most


def _if_compiled(trial: Callable[..., float | None], *inputs: object, **options: object) -> float | None:
    """Return the measurement of ``trial``; None if it needs kernels that were never compiled."""
    try:
        return trial(*inputs, **options)
    except NotCompiledError:
        return None


def _tried_on_device(graph: Graph, problem: Problem, machine: Machine, plan: Plan) -> float | None:
    """Return the measured seconds per source of batched searches on the GPU: infinite if they were given up, None if
    they were not tried.
    """
    searches = [c for c in plan.candidates if c.feasible and c.device == "cuda" and c.algorithm in SEARCHES]
    best = min((p.seconds for c in searches for p in c.phases if p.name == "search"), default=0.0)
    if best < DEVICE_WORTHWHILE or best > CONTENDER * plan.seconds or plan.algorithm == "partitioned":
        return None  # graphs that suit the parts are deep, and searches there take longer than the table predicts
    from engine.devices.cuda.search import trial_seconds

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    unit = any(c.algorithm == "bfs" for c in searches)
    form = form_of(unit=unit, hops=problem.hops, n=graph.n, arcs=graph.arcs)
    form = replace(form, limit=max(form.limit // 4, LEAST_LIMIT))
    sources, memory = np.roll(np.arange(graph.n), graph.n // 3), machine.cuda.memory if machine.cuda else None
    took = trial_seconds(arcs, WORK_TYPES[plan.dtype], form, sources, memory=memory)
    return math.inf if took is None else took


def relax_rate(kind: WorkType, threads: int, products: int = PRODUCTS) -> float:
    """Measure the updates a second of some min-plus products in ``kind`` on ``threads`` threads.

    Raises NotCompiledError if their kernels were never compiled."""
    from engine.devices.cpu.backend import CpuBackend

    with only_ready():
        _relax_once(CpuBackend(1), kind)
    backend = CpuBackend(threads)
    try:
        a, c = np.ones((EDGE, EDGE), kind.dtype), np.full((EDGE, EDGE), 9, kind.dtype)
        times = []
        for _ in range(products):
            began = time.process_time()
            backend.relax(c, a, a, nonnegative=True)
            times.append((time.process_time() - began) / threads)
        return float(EDGE**3 / min(times[1:]))  # the first product is slower, because it packs into fresh memory
    finally:
        backend.shutdown()


def _relax_once(backend: CpuBackend, kind: WorkType) -> None:
    """Load the kernels of a product; raise NotCompiledError if they were never compiled."""
    side = np.zeros((TINY, TINY), kind.dtype)
    try:
        backend.relax(side, side.copy(), side.copy(), nonnegative=True)
    finally:
        backend.shutdown()


class SearchTrial:
    """Searches on the graph itself.  The rows that they find are kept in the profile, for the solve that follows.

    Weights are replaced by their absolute values, so that graphs with negative arcs can be tried before they have
    potentials.  The rows are not kept in that case, nor if there are targets or a cutoff.

    Args:
        profile: the graph.
        kind: the working type.
        threads: the number of threads that search.
        rectangle: sources, targets and cutoff; None for all vertices.
        budget: seconds that the searches may take, approximately; None for ``TRIAL``.
    """

    def __init__(
        self,
        profile: GraphProfile,
        kind: WorkType,
        threads: int,
        rectangle: Rectangle | None = None,
        budget: float | None = None,
    ) -> None:
        graph = profile.graph
        self._profile, self._kind, self._threads = profile, kind, threads
        self._budget = TRIAL if budget is None else budget
        self._wanted = rectangle or Rectangle(graph.n, None, None, None)
        whole = self._wanted.targets is None and self._wanted.cutoff is None
        keeps = profile.nonnegative and profile.reduced_by is None and whole
        self._arcs = profile.arcs if profile.nonnegative else Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
        self._order = np.roll(self._wanted.rows, len(self._wanted.rows) // 3)  # in the order of the rows, as in a solve
        self._known = KnownRows(graph.n, kind.dtype) if keeps else None
        self._left = MOST_KEPT
        self._most = len(self._order)
        profile.known = self._known

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns that the whole solve searches."""
        return len(self._order), len(self._wanted.columns)

    @property
    def keeps(self) -> bool:
        """Whether the solve can use the rows of this trial."""
        return self._known is not None

    @property
    def found(self) -> int:
        """The number of rows that are kept."""
        return 0 if self._known is None else self._known.count

    def limit(self, rows: int) -> None:
        """Limit the next trial to ``rows`` rows, not counting those that are searched untimed to load the kernels."""
        self._most = min(rows, len(self._order))

    def seconds(self, *, unit: bool, bits: bool = False) -> float | None:
        """Measure the seconds per source with all threads; None if the limit allows too few sources.

        Args:
            unit: whether all arcs count as 1.
            bits: whether to time the breadth-first search with one bit per source, for arcs that all weigh 1.

        Raises:
            NotCompiledError: the kernels were never compiled.
        """
        from engine.devices.cpu.backend import CpuBackend
        from engine.devices.cpu.bfs_bits import BreadthFirst

        abreast = HOP_SOURCES if bits else LANE_BYTES // self._kind.itemsize
        full = min(len(self._order), self._threads * abreast)
        if full + self._threads > self._most < len(self._order) or not len(self._order):
            return None  # the time of few sources does not predict the time of many
        make = BreadthFirst if bits else CpuBackend
        if (loads := self._kernels(unit=unit, bits=bits)) not in _LOADED:
            backend = make(1)
            try:
                with only_ready():  # raises if a kernel is not compiled: planning waits for no compiler
                    self._search(backend, 1, unit=unit)  # loads kernels of single searches, the next call those of many
                    self._search(backend, HOP_SOURCES_LEAST if bits else HEAP_BELOW, unit=unit)
            finally:
                backend.shutdown()
            _LOADED.add(loads)
        backend = make(self._threads)
        try:
            return self._timed(backend, full, unit=unit)
        finally:
            backend.shutdown()

    def _timed(self, backend: CpuBackend, full: int, *, unit: bool) -> float:
        """Return the seconds per source of searches on all threads.

        Args:
            backend: makes the searches.
            full: the number of sources that fill the vectors of all threads.
            unit: whether all arcs count as 1.
        """
        most, columns, count = len(self._order), len(self._wanted.columns), self._threads
        left: float = self._most if self._most < most else math.inf
        while True:
            last = count >= min(most, self._fresh)  # no source is left after this search
            count = min(count, most, self._fresh or count)
            took = self._search(backend, count, unit=unit) / self._threads
            left -= count
            if count < full and not last and full <= left and (full < SHARE * most or took / count * full < LONG_TRIAL):
                count = full
                continue
            long = took > self._budget / 4 and count > TOLD * most
            more = count * max(2, min(STEP, int(self._budget / 2 / max(took, 1e-6))))
            if last or long or left < 2 * count or count * columns * self._kind.itemsize > 2**26:
                far = AGAIN * count <= most and count <= left  # sources elsewhere may lie closer or farther apart
                other = self._search(backend, count, unit=unit, place=most // 2) / self._threads if far else took
                return (took + other) / (2 * count)
            count = int(min(more, left))

    def _kernels(self, *, unit: bool, bits: bool) -> tuple[object, ...]:
        """Return the key of the kernels that search: types, and the numbers of bits of vertices and distances."""
        graph, wanted = self._profile.graph, self._wanted
        low, high = self._profile.weight_range
        types = (self._kind.name, graph.weights.dtype.name, graph.indptr.flags.writeable, graph.heads.flags.writeable)
        sizes = (graph.n.bit_length(), math.frexp(high)[1], low < 0)
        return (bits, unit, *types, *sizes, wanted.targets is None, wanted.cutoff is None)

    @property
    def _fresh(self) -> int:
        """Return the number of sources that were not searched yet; all of them if no rows are kept."""
        return len(self._order) - (0 if self._known is None else self._known.count)

    def _search(self, backend: CpuBackend, count: int, *, unit: bool, place: int = 0) -> float:
        """Return the processor seconds of ``count`` searches, from source ``place`` on, of new sources if possible."""
        order = np.roll(self._order, -place)
        if self._known is not None:
            fresh = order[~self._known.knows(order)]
            order = fresh if len(fresh) >= count else order
        some, wanted = order[:count], self._wanted
        block: npt.NDArray[np.generic] = np.empty((len(some), len(wanted.columns)), self._kind.dtype)
        began = time.process_time()
        backend.search(self._arcs, some, block, unit=unit, targets=wanted.targets, cutoff=wanted.cutoff)
        took = time.process_time() - began
        if self._known is not None and not self._known.knows(some).any() and self._left >= block.nbytes:
            self._known.add(some, block)
            self._left -= block.nbytes
        return took
