"""Predicted costs of batched searches on a GPU."""

from __future__ import annotations

import math

from engine.model.device_layout import SearchForm, SearchLayout, form_of, narrow_first
from engine.model.plan import Candidate, Phase
from engine.planning import cost_dijkstra
from engine.planning.constants import (
    BAND_ROWS,
    DEVICE_INGEST_RATE,
    DEVICE_LAUNCH,
    LABELS_OUT_RATE,
    POTENTIAL_PASSES,
    PULL_CHIP_RATE,
    PULL_RATES,
    SEARCH_START,
    TWICE_AS_LONG,
)
from engine.planning.cost import Setting, candidate, device_write


def estimate(setting: Setting) -> Candidate:
    """Estimate batched label correcting, for arcs that are not negative."""
    return _candidate(setting, "bellman-ford", _form(setting, unit=False))


def estimate_bfs(setting: Setting) -> Candidate:
    """Estimate batched breadth-first searches."""
    return _candidate(setting, "bfs", _form(setting, unit=setting.problem.unit))


def estimate_johnson(setting: Setting) -> Candidate:
    """Estimate potentials on the host and batched label correcting over reduced weights."""
    before = Phase("potentials", POTENTIAL_PASSES * setting.problem.arcs / setting.machine.search_rate)
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
    start = DEVICE_LAUNCH + SEARCH_START[form.name]
    ingest = Phase("ingest", start + arcs / DEVICE_INGEST_RATE, bytes=arcs)
    tried = setting.trials.device_search
    seconds = _search_seconds(setting, form, reduced=reduced) if tried is None else tried
    if seconds == math.inf:  # the GPU gave up a trial; in a solve, the processors would repeat its searches
        seconds = 2 * cost_dijkstra.search_seconds(setting)
    work = Phase("search", problem.rows * seconds, updates=problem.rows * problem.arcs)
    write = device_write(setting)
    layout = SearchLayout(problem.n, problem.arcs, problem.rows, kind.itemsize, form.name)
    batch = layout.batch(machine.cuda.memory)
    first = next(layout.spans(batch), range(0))
    alone = min(work.seconds, write.seconds) * len(first) / max(problem.rows, 1)  # the first batch has no overlap
    band = BAND_ROWS * problem.n * kind.itemsize
    return candidate(
        setting,
        name,
        (*before, ingest, work, write),
        memory=(machine.threads + 2) * band + 64 * (problem.arcs + problem.n),
        seconds=sum(p.seconds for p in before) + ingest.seconds + max(work.seconds, write.seconds) + alone,
        device="cuda",
        device_memory=layout.bytes(batch),
    )


def _search_seconds(setting: Setting, form: SearchForm, *, reduced: bool) -> float:
    """Return the predicted seconds per source."""
    problem, device = setting.problem, setting.machine.cuda
    assert device is not None
    narrow = narrow_first(setting.kind, problem.max_weight) and not reduced
    size = {"hops": 0.125}.get(form.name, 2 if narrow else setting.kind.itemsize)
    rate = PULL_RATES[form.name] * device.relax_rate["int32"] / PULL_CHIP_RATE
    if form.name == "sweep":
        rate /= 1 + problem.arcs / max(1, problem.n) / TWICE_AS_LONG
    return (problem.arcs + 2 * problem.n) * size / rate + problem.n * setting.kind.itemsize / LABELS_OUT_RATE
