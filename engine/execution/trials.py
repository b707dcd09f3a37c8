"""Rates measured on this machine and on this graph, so that predictions rest on more than a table.

Nothing is kept from one plan to the next: what the machine gives changes with what else it does, and the measurements
take a small part of the work that they predict.  Processor time is measured, shared out over the threads: another
process that happens to run meanwhile must not make one algorithm look slower than another.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.execution.rates import with_rates
from engine.execution.search_cuda import ALGORITHMS as SEARCHES
from engine.graph.selection import Rectangle
from engine.model.backend import Arcs
from engine.model.device_layout import form_of
from engine.model.dtypes import WorkType
from engine.model.plan import Plan
from engine.model.problem import Machine, Problem
from engine.planning import cost_bfs
from engine.planning.cost import search_workspace
from engine.planning.cost_dijkstra import FEW, SIDE_BY_SIDE
from storage.graph.graph import Graph

#: Below so many seconds of predicted work nothing is measured: any choice is quick.
WORTHWHILE: Final = 0.05
#: Edge of the product that is timed, 2^30 updates: some hundredths of a second.
EDGE: Final = 1024
#: Products are timed only if the table's prediction is within this factor of the searches.
CONTENDER: Final = 10
#: Seconds that trial searches may take, roughly.
TRIAL: Final = 0.1
#: Seconds of predicted searches on a GPU from which a trial there, which takes up to a quarter of a second, pays.
DEVICE_WORTHWHILE: Final = 1.0
#: A trial is given up at a quarter of the limit of a solve, but not below this one.
LEAST_LIMIT: Final = 255
#: Share of the sources that tells enough about all of them: the more are asked for, the nearer their neighbours are.
TOLD: Final = 0.005
#: Sources for each one of the last trial from which on there is one more, from another place.
AGAIN: Final = 40
#: Sources of a later trial for each one of the trial before; searches work on many side by side.
STEP: Final = 64
#: Bytes that measuring takes beside what searches hold: rows, tiles in flight, what the allocator keeps of them.
ROOM: Final = 256 * 2**20
#: Share of the sources, and predicted seconds, either of which a trial that fills the vectors may come to.
SHARE: Final = 0.05
LONG_TRIAL: Final = 0.3


def calibrate(
    graph: Graph,
    problem: Problem,
    kind: WorkType,
    machine: Machine,
    plan: Plan,
    *,
    device: str = "cpu",
    rectangle: Rectangle | None = None,
    out: Path | None = None,
) -> Machine:
    """``machine`` with the rates measured that matter for choosing; ``plan`` is what its present rates predict.

    What products on a GPU take is predicted from a table: it hardly varies.  What searches take there depends on the
    graph: a few are tried where they may be the best choice.  ``device`` is the one asked for; with ``cuda`` there is
    no choice that the processors' rates could change.  ``rectangle`` is what is asked of the matrix, ``out`` where the
    store would go; what ``engine.execution.rates`` measures there is kept.  Nothing is measured where ``plan`` leaves
    no memory for it: measuring must not be why a plan that fits does not fit any more.
    """
    space = ROOM + search_workspace(problem.n, problem.arcs, machine.threads)
    if plan.seconds < WORTHWHILE or plan.memory + space > machine.memory:
        return machine
    machine = with_rates(machine, kind, plan, out)
    machine = _tried_on_device(graph, problem, kind, machine, plan)
    if device == "cuda":
        return machine
    search = hops = None
    searched = rectangle or Rectangle(graph.n, None, None, None)
    if any(
        c.from_targets for c in plan.candidates
    ):  # a graph turned round takes about as long, and is not made for this
        searched = Rectangle(graph.n, searched.targets, searched.sources, searched.cutoff)
    if problem.max_hops is None:
        search = search_seconds(graph, kind, machine.threads, unit=problem.unit, rectangle=searched)
        if any(c.algorithm == "bfs" and c.device == "cpu" and c.feasible for c in plan.candidates):
            hops = search_seconds(graph, kind, machine.threads, unit=True, rectangle=searched, bits=True)
    own = [c for c in plan.candidates if c.feasible and c.device == "cpu"]
    products = [c.seconds for c in own if any(p.name == "relax" for p in c.phases)]
    asked = any(p.name == "relax" for p in plan.phases)  # by its name: whatever searches would take
    if products and (asked or search is None or min(products) < CONTENDER * search * len(searched.rows)):
        machine = replace(machine, relax_rate={kind.name: relax_rate(kind, machine.threads)})
    return replace(machine, search_seconds=search, hop_search_seconds=hops)


def _tried_on_device(graph: Graph, problem: Problem, kind: WorkType, machine: Machine, plan: Plan) -> Machine:
    """``machine`` with the seconds a source of batched searches on its GPU; infinite where they were given up."""
    searches = [c for c in plan.candidates if c.feasible and c.device == "cuda" and c.algorithm in SEARCHES]
    best = min((p.seconds for c in searches for p in c.phases if p.name == "search"), default=0.0)
    if best < DEVICE_WORTHWHILE or best > CONTENDER * plan.seconds:
        return machine
    from engine.devices.cuda.search import trial_seconds

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    unit = any(c.algorithm == "bfs" for c in searches)
    form = form_of(unit=unit, hops=problem.hops, n=graph.n, arcs=graph.arcs)
    form = replace(form, limit=max(form.limit // 4, LEAST_LIMIT))
    sources = np.roll(np.arange(graph.n), graph.n // 3)
    took = trial_seconds(arcs, kind, form, sources, memory=machine.cuda.memory if machine.cuda else None)
    return replace(machine, device_search_seconds=np.inf if took is None else took)


def relax_rate(kind: WorkType, threads: int) -> float:
    """Updates a second of min-plus products in ``kind`` on ``threads`` threads."""
    from engine.devices.cpu.backend import CpuBackend

    backend = CpuBackend(threads)
    try:
        a, c = np.ones((EDGE, EDGE), kind.dtype), np.full((EDGE, EDGE), 9, kind.dtype)
        times = []
        for _ in range(4):
            began = time.process_time()
            backend.relax(c, a, a, nonnegative=True)
            times.append((time.process_time() - began) / threads)
        return float(EDGE**3 / min(times[1:]))  # the first one compiles
    finally:
        backend.shutdown()


def search_seconds(
    graph: Graph, kind: WorkType, threads: int, *, unit: bool, rectangle: Rectangle | None = None, bits: bool = False
) -> float:
    """Seconds a source that searches for ``rectangle`` take on ``graph``, all threads together.

    With ``bits`` the searches are those of one bit a source, for arcs that all weigh 1.

    The weights' size stands in for the weights, so that graphs with negative arcs can be tried before they have
    potentials.
    """
    from engine.devices.cpu.backend import CpuBackend

    arcs = Arcs(graph.indptr, graph.heads, np.abs(graph.weights))
    wanted = rectangle or Rectangle(graph.n, None, None, None)
    targets, most = wanted.targets, len(wanted.rows)
    columns = graph.n if targets is None else len(targets)
    order = np.roll(wanted.rows, most // 3)  # in the order of the rows, as the solve itself will ask
    if bits:
        from engine.devices.cpu.bfs_bits import BreadthFirst

        backend: CpuBackend = BreadthFirst(threads)
    else:
        backend = CpuBackend(threads)
    abreast = cost_bfs.ABREAST if bits else SIDE_BY_SIDE // kind.itemsize

    room: npt.NDArray[np.generic] = np.empty((0, columns), kind.dtype)

    def search(count: int, first: int = 0) -> float:
        """Processor seconds.  Rows go where others have been, as in a solve: fresh memory is dear on some machines."""
        nonlocal room
        if len(room) < count:
            room = np.full((count, columns), 1, kind.dtype)
        began = time.process_time()
        some = order[first : first + count]
        backend.search(arcs, some, room[:count], unit=unit, targets=targets, cutoff=wanted.cutoff)
        return time.process_time() - began

    try:
        search(1)  # compiles and prepares, for one by one
        search(cost_bfs.FEW if bits else FEW)  # and for side by side
        count, full = threads, min(most, threads * abreast)
        while True:
            count = min(count, most)
            took = search(count) / threads
            if count < full and (full < SHARE * most or took / count * full < LONG_TRIAL):
                count = full
                continue
            if count == most or (took > TRIAL / 4 and count > TOLD * most) or count * columns * kind.itemsize > 2**26:
                far = AGAIN * count <= most  # neighbours somewhere else may lie nearer or farther apart
                return (took + search(count, most // 2) / threads) / (2 * count) if far else took / count
            count *= max(2, min(STEP, int(TRIAL / 2 / max(took, 1e-6))))
    finally:
        backend.shutdown()
