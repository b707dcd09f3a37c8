"""Rates measured on this machine and on this graph, so that predictions rest on more than a table.

Nothing is kept from one plan to the next: the rates depend on what else the machine does, and the measurements take a
small part of the work that they predict.  The trials measure processor time, divided by the threads, so that another
process cannot make one algorithm look slower than another.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

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
from engine.model.plan import Plan
from engine.model.problem import Machine, Problem, Trials
from engine.planning.constants import HEAP_BELOW, HOP_SOURCES, HOP_SOURCES_LEAST, LANE_BYTES
from engine.planning.cost import search_workspace
from storage.graph.graph import Graph

#: Below this many seconds of predicted work nothing is measured: any choice is fast enough.
WORTHWHILE: Final = 0.05
#: Side of the square product that is timed, 2^30 updates: some hundredths of a second.
EDGE: Final = 1024
#: Products are timed only if the table predicts less than this many times the seconds of the searches.
CONTENDER: Final = 10
#: Searches are tried only if the table predicts less than this many times the plan's seconds; it is right within 3.
UNLIKELY: Final = 8
#: Products that are timed, and the least number of times as long that a plan takes which no other one rivals.
PRODUCTS: Final = 4
TIMED_SHARE: Final = 20
#: Seconds that trial searches may take, approximately.
TRIAL: Final = 0.1
#: A trial on a GPU, which takes up to a quarter of a second, pays from this many seconds of predicted searches on.
DEVICE_WORTHWHILE: Final = 1.0
#: A trial may take a quarter of the steps that its search form allows a solve (``limit``), but at least this many.
LEAST_LIMIT: Final = 255
#: Share of the sources that is a sufficient sample: the more sources there are, the closer they lie to each other.
TOLD: Final = 0.005
#: If there are at least this many times the sources of the last trial, a further trial starts at another place.
AGAIN: Final = 40
#: Most times the sources of the trial before in the next one; searches work on many sources side by side.
STEP: Final = 64
#: Bytes that measuring takes in addition to the searches' workspace: rows, tiles in flight, what the allocator keeps.
HEADROOM: Final = 256 * 2**20
#: A trial that fills the vectors may take this share of the sources, or else this many predicted seconds.
SHARE: Final = 0.05
LONG_TRIAL: Final = 0.3


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
    """Return ``machine`` with measured rates, and trials of searches, where they decide between the plan's candidates.

    Products on a GPU are predicted from a table, as their rate hardly varies.  The rate of searches on a GPU depends on
    the graph, so a few are tried where searches may be the best choice.  Nothing is measured where ``plan`` leaves no
    memory for it: a measurement must not be the reason that a plan no longer fits.

    Args:
        profile: the graph.
        problem: its description.
        machine: the machine as surveyed.
        plan: the plan that the present rates predict.
        device: the device asked for; with ``cuda`` the rates of the processors decide nothing.
        rectangle: the sources and targets asked for; None for all.
        out: path of the store, whose disk is measured and the rates kept (``engine.execution.rates``); None for none.

    Returns:
        ``machine`` itself where no rate was measured, and None where no search was tried.
    """
    space = HEADROOM + search_workspace(problem.n, problem.arcs, machine.threads)
    if plan.seconds < WORTHWHILE or plan.memory + space > machine.memory:
        return machine, None
    graph, kind = profile.graph, WORK_TYPES[plan.dtype]
    machine = with_rates(machine, kind, plan, out)
    on_device = _tried_on_device(graph, problem, machine, plan)
    if device == "cuda":
        return machine, None if on_device is None else Trials(device_search=on_device)
    search = hops = None
    searched = rectangle or Rectangle(graph.n, None, None, None)
    if any(c.from_targets for c in plan.candidates):
        searched = searched.transposed  # the transposed graph takes about as long, and is not made for this
    own = [c for c in plan.candidates if c.feasible and c.device == "cpu"]
    contest = any(ALGORITHMS[c.algorithm].searches and c.seconds < UNLIKELY * plan.seconds for c in own)
    if problem.max_hops is None and contest:
        search = search_seconds(graph, kind, machine.threads, unit=problem.unit, rectangle=searched)
        if any(c.algorithm == "bfs" for c in own):
            hops = search_seconds(graph, kind, machine.threads, unit=True, rectangle=searched, bits=True)
    products = [c.seconds for c in own if any(p.name == "relax" for p in c.phases)]
    long = plan.seconds > TIMED_SHARE * PRODUCTS * EDGE**3 / machine.relax_rate[kind.name]
    asked = long and any(p.name == "relax" for p in plan.phases)  # its rate decides nothing, but the prediction
    rival = search is not None and min(products, default=np.inf) < CONTENDER * search * len(searched.rows)
    if products and (asked or rival):
        machine = replace(machine, relax_rate={kind.name: relax_rate(kind, machine.threads)})
    return machine, Trials(search, hops, on_device)


def _tried_on_device(graph: Graph, problem: Problem, machine: Machine, plan: Plan) -> float | None:
    """Return the measured seconds a source of batched searches on the GPU: infinite if they were given up, None if they
    were not tried.
    """
    searches = [c for c in plan.candidates if c.feasible and c.device == "cuda" and c.algorithm in SEARCHES]
    best = min((p.seconds for c in searches for p in c.phases if p.name == "search"), default=0.0)
    if best < DEVICE_WORTHWHILE or best > CONTENDER * plan.seconds:
        return None
    from engine.devices.cuda.search import trial_seconds

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    unit = any(c.algorithm == "bfs" for c in searches)
    form = form_of(unit=unit, hops=problem.hops, n=graph.n, arcs=graph.arcs)
    form = replace(form, limit=max(form.limit // 4, LEAST_LIMIT))
    sources, memory = np.roll(np.arange(graph.n), graph.n // 3), machine.cuda.memory if machine.cuda else None
    took = trial_seconds(arcs, WORK_TYPES[plan.dtype], form, sources, memory=memory)
    return math.inf if took is None else took


def relax_rate(kind: WorkType, threads: int) -> float:
    """Measure the updates a second of min-plus products in ``kind`` on ``threads`` threads."""
    from engine.devices.cpu.backend import CpuBackend

    backend = CpuBackend(threads)
    try:
        a, c = np.ones((EDGE, EDGE), kind.dtype), np.full((EDGE, EDGE), 9, kind.dtype)
        times = []
        for _ in range(PRODUCTS):
            began = time.process_time()
            backend.relax(c, a, a, nonnegative=True)
            times.append((time.process_time() - began) / threads)
        return float(EDGE**3 / min(times[1:]))  # the first one compiles
    finally:
        backend.shutdown()


def search_seconds(
    graph: Graph, kind: WorkType, threads: int, *, unit: bool, rectangle: Rectangle | None = None, bits: bool = False
) -> float:
    """Measure the seconds a source, all threads together, of searches for ``rectangle`` on ``graph``.

    Weights are replaced by their absolute values, so that graphs with negative arcs can be tried before they have
    potentials.

    Args:
        graph: the graph.
        kind: the working type.
        threads: threads that search.
        unit: whether all arcs count as 1.
        rectangle: sources, targets and cutoff; None for all vertices.
        bits: whether to time the breadth-first search with one bit a source, for arcs that all weigh 1.
    """
    from engine.devices.cpu.backend import CpuBackend

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    wanted = rectangle or Rectangle(graph.n, None, None, None)
    targets, most = wanted.targets, len(wanted.rows)
    columns = graph.n if targets is None else len(targets)
    order = np.roll(wanted.rows, most // 3)  # in the order of the rows, as in the solve
    if bits:
        from engine.devices.cpu.bfs_bits import BreadthFirst

        backend: CpuBackend = BreadthFirst(threads)
    else:
        backend = CpuBackend(threads)
    abreast = HOP_SOURCES if bits else LANE_BYTES // kind.itemsize

    scratch: npt.NDArray[np.generic] = np.empty((0, columns), kind.dtype)

    def search(count: int, first: int = 0) -> float:
        """Return the processor seconds of ``count`` searches.  Rows reuse memory, as in a solve: fresh memory is slow
        on some machines.
        """
        nonlocal scratch
        if len(scratch) < count:
            scratch = np.full((count, columns), 1, kind.dtype)
        began = time.process_time()
        some = order[first : first + count]
        backend.search(arcs, some, scratch[:count], unit=unit, targets=targets, cutoff=wanted.cutoff)
        return time.process_time() - began

    try:
        search(1)  # compiles and prepares searches of one source
        search(HOP_SOURCES_LEAST if bits else HEAP_BELOW)  # and searches of several sources side by side
        count, full = threads, min(most, threads * abreast)
        while True:
            count = min(count, most)
            took = search(count) / threads
            if count < full and (full < SHARE * most or took / count * full < LONG_TRIAL):
                count = full
                continue
            if count == most or (took > TRIAL / 4 and count > TOLD * most) or count * columns * kind.itemsize > 2**26:
                far = AGAIN * count <= most  # sources at another place may lie closer together or farther apart
                return (took + search(count, most // 2) / threads) / (2 * count) if far else took / count
            count *= max(2, min(STEP, int(TRIAL / 2 / max(took, 1e-6))))
    finally:
        backend.shutdown()
