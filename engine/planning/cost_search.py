"""What batched searches on a GPU cost."""

from __future__ import annotations

import math
from typing import Final

from engine.model.device_layout import SearchForm, SearchLayout, form_of, narrow_first
from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.cost import BAND_ROWS, DEVICE_INGEST_RATE, DEVICE_LAUNCH, OVERHEAD, Setting, device_write
from engine.planning.cost_johnson import PASSES

#: Bytes of labels that are pulled over arcs a second, where labels settle once: passes over the same arcs are in it.
#: Measured on an H200 (docs/kernels.md); other chips are taken to be slower as their products are.
RATES: Final = {"sweep": 3.0e11, "lists": 6.0e10, "hops": 1.0e11}
#: Seconds that searches take besides: arcs are sorted and sent, for lists in an order that is found first.
#: Breadth-first searches leave vertices of many in-arcs as they are, so a step waits for the one that has most; of
#: as-caida20070917, where one has 1,452, all took 4.3 ms longer than sweeps.
BESIDES: Final = {"sweep": 0.2e-3, "lists": 4e-3, "hops": 4.2e-3}
#: Arcs a vertex at which sweeps take twice as long for each arc: there are more ways to be corrected, and heads of many
#: arcs take them through others.  From complete graphs, where it is seven times as long, and those of m = 4 n.
DENSE: Final = 700
#: Updates a second of int32 products of the chip that ``RATES`` are of.
RATED: Final = 17.8e12


def estimate(setting: Setting) -> Candidate:
    """Batched label correcting, arcs of any weight but negative."""
    return _candidate(setting, "bellman-ford", _form(setting, unit=False))


def estimate_bfs(setting: Setting) -> Candidate:
    """Batched breadth-first searches."""
    return _candidate(setting, "bfs", _form(setting, unit=setting.problem.unit))


def estimate_johnson(setting: Setting) -> Candidate:
    """Potentials on the host, batched label correcting over reduced weights."""
    before = Phase("potentials", PASSES * setting.problem.arcs / setting.machine.search_rate)
    form = _form(setting, unit=False)
    return _candidate(setting, "johnson", form, before=(before,), reduced=True)


def _form(setting: Setting, *, unit: bool) -> SearchForm:
    problem = setting.problem
    return form_of(unit=unit, hops=problem.hops, n=problem.n, arcs=problem.arcs)


def _candidate(
    setting: Setting, name: str, form: SearchForm, *, before: tuple[Phase, ...] = (), reduced: bool = False
) -> Candidate:
    problem, machine, kind = setting.problem, setting.machine, setting.kind
    if machine.cuda is None:
        raise ValueError("the machine has no device")
    arcs = problem.arcs * (4 + kind.itemsize)
    start = DEVICE_LAUNCH + BESIDES[form.name]
    ingest = Phase("ingest", start + arcs / DEVICE_INGEST_RATE, bytes=arcs)
    tried = machine.device_search_seconds
    seconds = _search_seconds(setting, form, reduced=reduced) if tried is None else tried
    if seconds == math.inf:  # a trial was given up, so the processors would have to do it after all
        seconds = 2 * cost_dijkstra.search_seconds(setting)
    work = Phase("search", problem.rows * seconds, updates=problem.rows * problem.arcs)
    write = device_write(setting)
    layout = SearchLayout(problem.n, problem.arcs, problem.rows, kind.itemsize, form.name)
    batch = layout.batch(machine.cuda.memory)
    first = next(layout.spans(batch), range(0))
    alone = min(work.seconds, write.seconds) * len(first) / max(problem.rows, 1)  # the rest overlaps
    band = BAND_ROWS * problem.n * kind.itemsize
    return Candidate(
        algorithm=name,
        device="cuda",
        memory=machine.resident + OVERHEAD + (machine.threads + 2) * band + 64 * (problem.arcs + problem.n),
        device_memory=layout.bytes(batch),
        disk=setting.store,
        seconds=sum(p.seconds for p in before) + ingest.seconds + max(work.seconds, write.seconds) + alone,
        phases=(*before, ingest, work, write),
    )


def _search_seconds(setting: Setting, form: SearchForm, *, reduced: bool) -> float:
    """Seconds a source, where none was tried on the graph."""
    problem, device = setting.problem, setting.machine.cuda
    assert device is not None
    narrow = narrow_first(setting.kind, problem.max_weight) and not reduced
    size = {"hops": 0.125}.get(form.name, 2 if narrow else setting.kind.itemsize)
    rate = RATES[form.name] * device.relax_rate["int32"] / RATED
    if form.name == "sweep":
        rate /= 1 + problem.arcs / max(1, problem.n) / DENSE
    return (problem.arcs + 2 * problem.n) * size / rate + problem.n * setting.kind.itemsize / 2e12
