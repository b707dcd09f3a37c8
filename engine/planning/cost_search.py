"""Predicted costs of batched searches on a GPU."""

from __future__ import annotations

import math
from typing import Final

from engine.model.device_layout import SearchForm, SearchLayout, form_of, narrow_first
from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.cost import BAND_ROWS, DEVICE_INGEST_RATE, DEVICE_LAUNCH, OVERHEAD, Setting, device_write
from engine.planning.cost_johnson import PASSES

#: Bytes of tentative distances that are pulled over arcs a second, as if each arc were used once: repeated passes are
#: included.  Measured on an H200 (docs/kernels.md); other chips are assumed to be slower in proportion to their
#: products.
RATES: Final = {"sweep": 3.0e11, "lists": 6.0e10, "hops": 1.0e11}
#: Seconds of searches besides that: arcs are sorted and sent; for lists a vertex order is found first.  Breadth-first
#: searches do not split vertices of many in-arcs, so a step waits for the vertex that has most: for as-caida20070917,
#: where one has 1,452, all searches took 4.3 ms longer than sweeps.
BESIDES: Final = {"sweep": 0.2e-3, "lists": 4e-3, "hops": 4.2e-3}
#: At this number of arcs a vertex sweeps take twice as long for each arc: labels are corrected more often, and heads of
#: many arcs are split.  From complete graphs, where it is seven times as long, and graphs of m = 4 n.
DENSE: Final = 700
#: Updates a second of int32 products on the chip where ``RATES`` were measured.
RATED: Final = 17.8e12


def estimate(setting: Setting) -> Candidate:
    """Estimate batched label correcting, for arcs that are not negative."""
    return _candidate(setting, "bellman-ford", _form(setting, unit=False))


def estimate_bfs(setting: Setting) -> Candidate:
    """Estimate batched breadth-first searches."""
    return _candidate(setting, "bfs", _form(setting, unit=setting.problem.unit))


def estimate_johnson(setting: Setting) -> Candidate:
    """Estimate potentials on the host and batched label correcting over reduced weights."""
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
    if seconds == math.inf:  # a trial was given up, so the processors would have to search again
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
    """Return the predicted seconds of a source."""
    problem, device = setting.problem, setting.machine.cuda
    assert device is not None
    narrow = narrow_first(setting.kind, problem.max_weight) and not reduced
    size = {"hops": 0.125}.get(form.name, 2 if narrow else setting.kind.itemsize)
    rate = RATES[form.name] * device.relax_rate["int32"] / RATED
    if form.name == "sweep":
        rate /= 1 + problem.arcs / max(1, problem.n) / DENSE
    return (problem.arcs + 2 * problem.n) * size / rate + problem.n * setting.kind.itemsize / 2e12
