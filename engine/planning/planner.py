"""Selects working type and algorithm, and says why; only the problem, the machine and the options matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from engine.model.algorithms import by_rows, unsuitable
from engine.model.dtypes import REACH, WORK_TYPES, WorkType
from engine.model.plan import Candidate, Plan
from engine.model.problem import Machine, Options, Problem, Trials, changed
from engine.planning import (
    cost_bfs,
    cost_dense,
    cost_dijkstra,
    cost_partitioned,
    cost_search,
    cost_squaring,
)
from engine.planning.constants import LONG_ON_CPU, LONG_ON_GPU, STREAMED_FROM, UNKEPT
from engine.planning.cost import Setting, fewer, on_threads
from engine.planning.cost_distributed import over_workers
from engine.planning.cost_streaming import ALGORITHM as STREAMED
from engine.planning.cost_streaming import streamable, streamed
from engine.planning.cost_streaming_cuda import through_devices
from engine.planning.refusal import about_seconds, gib, refusal, seconds_text, shortages
from storage.errors import InvalidRequest

#: The estimate of each algorithm on processors.
ESTIMATES: Final[dict[str, Callable[[Setting], Candidate]]] = {
    "dijkstra": cost_dijkstra.estimate,
    "bfs": cost_bfs.estimate,
    "johnson": cost_dijkstra.estimate_johnson,
    "recursive-floyd-warshall": cost_dense.estimate_recursive,
    "blocked-floyd-warshall": cost_dense.estimate_blocked,
    "repeated-squaring": cost_squaring.estimate,
    "partitioned": cost_partitioned.estimate,
}
#: The estimate of each algorithm on a GPU.
DEVICE_ESTIMATES: Final[dict[str, Callable[[Setting], Candidate]]] = {
    "recursive-floyd-warshall": cost_dense.device_recursive,
    "blocked-floyd-warshall": cost_dense.device_blocked,
    "repeated-squaring": cost_squaring.estimate_device,
    "partitioned": cost_partitioned.estimate_device,
    "bellman-ford": cost_search.estimate,
    "bfs": cost_search.estimate_bfs,
    "johnson": cost_search.estimate_johnson,
}
#: A float32 below SMALLEST_FLOAT32 is subnormal and loses digits.
SMALLEST_FLOAT32 = 1.2e-38
LARGEST_FLOAT32 = 3.4e38
LARGEST_EXACT_FLOAT64 = 2**53
LARGEST_FLOAT64 = 1.7e308


def choose(
    problem: Problem, machine: Machine, options: Options, *, store: int | None = None, trials: Trials | None = None
) -> Plan:
    """Select the fastest algorithm that fits, in the narrowest proven type.

    Args:
        problem: the problem.
        machine: the machine.
        options: the user's options.
        store: bytes of the finished store; None for the bytes of the matrix.
        trials: seconds that trial searches of this graph took; None without trials.

    Raises:
        InvalidRequest: the options contradict the graph or each other.
        DoesNotFit: no suitable algorithm fits memory, the GPU or the disk; the message names the limit that binds and
            the least budgets that suffice.
    """
    _check(options, machine)
    kind, dtype_reason = choose_type(problem, options.dtype)
    size = problem.rows * problem.columns * kind.itemsize if store is None else store
    setting = Setting(problem, machine, kind, size, trials or Trials())
    if options.algorithm != "auto" and (why := unsuitable(options.algorithm, problem)):
        raise InvalidRequest(f"algorithm {options.algorithm} cannot be used: {why}", field="algorithm")
    candidates = _candidates(setting, options)
    pool = _pool(candidates, setting, options)
    if not pool:
        raise _nothing_suits(setting, options, candidates)
    setting, candidates, best = _on_threads_that_fit(setting, options, candidates, pool)
    if best is None:
        raise refusal(candidates, Setting(problem, machine, kind, size, setting.trials), options, _reconsidered)
    others = sorted((c for c in candidates if c is not best), key=lambda c: c.seconds)
    return Plan(
        algorithm=best.algorithm,
        dtype=kind.name,
        device=best.device,
        threads=setting.machine.threads,
        shape=(problem.rows, problem.columns),
        memory=best.memory,
        disk=best.disk,
        seconds=best.seconds,
        reason=_reason(best, others, options) + _fewer_reason(setting.machine, machine),
        dtype_reason=dtype_reason,
        max_hops=problem.max_hops,
        device_reason=_device_reason(best, machine, options),
        device_memory=best.device_memory,
        tier=best.tier,
        streaming=best.streaming,
        phases=best.phases,
        candidates=(best, *(_lost(c, best, options) for c in others)),
        cutoff=problem.cutoff,
        from_targets=best.from_targets,
        batch=best.batch,
        workers=best.workers,
        devices=best.devices,
    )


def _best(pool: list[Candidate]) -> Candidate | None:
    return min((c for c in pool if c.feasible), key=_cost, default=None)


def _on_threads_that_fit(
    setting: Setting, options: Options, candidates: list[Candidate], pool: list[Candidate]
) -> tuple[Setting, list[Candidate], Candidate | None]:
    """Return setting, candidates and the fastest candidate that fits, on fewer threads if that makes it fit or end
    sooner.

    Args:
        setting: problem, machine and type.
        options: the user's options.
        candidates: all candidates with all threads.
        pool: those of them that can solve the problem and that the options allow.

    Returns:
        What is selected.  If nothing fits, these are the candidates on one thread, which need the least memory, and
        None.
    """
    best = _best(pool)
    found = setting, candidates, best
    if best is not None and not _memory_costs_time(best, pool, setting, options):
        return found
    for threads in fewer(setting.machine):
        other = on_threads(setting, threads)
        candidates = _candidates(other, options)
        best = _best(_pool(candidates, other, options))
        if found[2] is None or (best is not None and _cost(best) < _cost(found[2])):
            found = other, candidates, best
    return found


def _memory_costs_time(best: Candidate, pool: list[Candidate], setting: Setting, options: Options) -> bool:
    """Return whether the job would end sooner with more memory, which fewer threads would leave.

    That is so if a faster candidate lacks memory, or if a solve from the store has little memory for its panels.
    """
    if best.tier != "store":
        return any(c.memory > setting.machine.memory and _cost(c) < _cost(best) for c in pool)
    roomy = replace(setting, machine=changed(setting.machine, memory=sys.maxsize))
    fastest = _best(_pool(_candidates(roomy, options), roomy, options))
    return fastest is not None and _cost(fastest) < _cost(best)


def _pool(candidates: list[Candidate], setting: Setting, options: Options) -> list[Candidate]:
    """Return the candidates that can solve the problem and that the options allow, whether they fit or not.

    If both breadth-first and label-correcting searches suit the problem, label-correcting searches are left out.  A
    trial on a GPU measures one time for both kinds of searches, so the planner could not compare them.
    """
    hops = options.algorithm == "auto" and setting.unsuitable["bfs"] is None
    return [
        c
        for c in candidates
        if setting.unsuitable[c.algorithm] is None
        and not (hops and c.algorithm == "bellman-ford")
        and (options.device != "cuda" or c.device == "cuda")
        and options.algorithm in ("auto", c.algorithm)
    ]


def _reconsidered(setting: Setting, options: Options) -> list[Candidate]:
    """Return the candidates for other budgets or options, so that a refusal can name budgets that suffice.

    These are the candidates on all threads, and those on one thread, which need the least memory.
    """
    counts = dict.fromkeys((setting.machine.threads, *list(fewer(setting.machine))[-1:]))
    settings = [on_threads(setting, threads) for threads in counts]
    return [c for one in settings for c in _pool(_candidates(one, options), one, options)]


def _candidates(setting: Setting, options: Options) -> list[Candidate]:
    """Return all candidates on this machine, each with the reason if it cannot be used."""
    machine = setting.machine
    if machine.workers is not None:
        return [_judge(candidate, setting, options) for candidate in over_workers(setting)]
    found = [_judge(ESTIMATES[name](setting), setting, options) for name in ESTIMATES]
    # quantities are summed along the paths of whole rows, and streamed rounds do not finish one row after the other
    if options.also:
        return found
    if setting.matrix > STREAMED_FROM or not any(c.feasible for c in found if c.algorithm == STREAMED):
        found += [_judge(candidate, setting, options) for candidate in streamed(setting)]
    if machine.cuda is not None and options.device != "cpu":
        if streamable(setting):
            found += [_judge(candidate, setting, options) for candidate in through_devices(setting)]
        found += [_judge(DEVICE_ESTIMATES[name](setting), setting, options) for name in DEVICE_ESTIMATES]
    return found


def _cost(candidate: Candidate) -> float:
    """Return the seconds by which candidates are compared.

    The seconds of a long solve whose work would be lost if the process ended are multiplied by UNKEPT.
    """
    kept = candidate.streaming is not None or by_rows(candidate.algorithm)
    long = LONG_ON_CPU if candidate.device == "cpu" else LONG_ON_GPU
    return candidate.seconds * (1.0 if kept or candidate.seconds < long else UNKEPT)


def _check(options: Options, machine: Machine) -> None:
    if options.algorithm == "auto" and options.device != "cuda":
        return
    known = dict.fromkeys((*ESTIMATES, *DEVICE_ESTIMATES))
    if options.algorithm != "auto" and options.algorithm not in known:
        names = ", ".join(known)
        raise InvalidRequest(f"algorithm {options.algorithm!r} is unknown; use auto, {names}", field="algorithm")
    if options.algorithm not in ("auto", *ESTIMATES) and (options.device == "cpu" or machine.cuda is None):
        why = "device cpu was asked for" if options.device == "cpu" else machine.no_cuda
        raise InvalidRequest(f"algorithm {options.algorithm} runs on a GPU only, and {why}", field="algorithm")
    if options.device == "cuda":
        if options.algorithm not in ("auto", *DEVICE_ESTIMATES):
            names = ", ".join(DEVICE_ESTIMATES)
            message = f"algorithm {options.algorithm} runs on the CPU only; device cuda runs {names}"
            raise InvalidRequest(message, field="algorithm")
        if machine.cuda is None:
            raise InvalidRequest(f"device cuda was asked for, but {machine.no_cuda}", field="device")


def choose_type(problem: Problem, asked: str) -> tuple[WorkType, str]:
    """Return the working type, and why it is safe.

    Args:
        problem: the problem.
        asked: name of a type, or ``auto``, as ``Options`` checks it.

    Raises:
        InvalidRequest: the type cannot hold the distances, or no type can.
    """
    if asked != "auto":
        kind = WORK_TYPES[asked]
        wrong = _misfit(kind, problem)
        if wrong:
            raise InvalidRequest(f"dtype {asked} cannot be used: {wrong}", field="dtype")
        return kind, f"asked for; distances are at most {problem.bound:,g}"
    order = ("uint16", "int32", "float64") if problem.integral else ("float32", "float64")
    wrong = None
    for name in order:
        wrong = _misfit(WORK_TYPES[name], problem, exact=problem.integral)
        if wrong is None:
            return WORK_TYPES[name], f"distances are at most {problem.bound:,g}: {problem.bound_proof}"
    # float64 is the widest type: a problem that does not fit it fits no type
    cure = "--dtype float64 rounds them" if problem.integral else "divide all weights by a power of ten"
    raise InvalidRequest(
        f"no type holds the distances, which may reach {problem.bound:g} ({problem.bound_proof}): {wrong}; {cure}",
        field="weight",
    )


def _misfit(kind: WorkType, problem: Problem, *, exact: bool = False) -> str | None:
    """Return why ``kind`` cannot hold the distances, or None if it can; with ``exact``, whole numbers must stay
    exact.
    """
    if kind.integer:
        if not problem.integral:
            return "the weights are not whole numbers"
        limit = kind.largest_signed if problem.negative else kind.largest
        if limit < 0:
            return f"some arcs are negative (the least is {problem.min_weight:g})"
        if problem.bound > limit:
            return f"distances may reach {problem.bound:g}, and {kind.name} holds up to {limit:g}"
        return None
    reach = problem.bound * (REACH if problem.negative else 1)
    if exact and reach > LARGEST_EXACT_FLOAT64:
        return f"intermediate sums may reach {reach:g}, and are exact up to 2^53"
    limit = LARGEST_FLOAT32 if kind.name == "float32" else LARGEST_FLOAT64
    if reach > limit:
        return f"intermediate sums may reach {reach:g}, and {kind.name} ends at {limit:g}"
    pairs = max(2, problem.rows * problem.columns)
    if problem.bound > LARGEST_FLOAT64 / pairs:
        return f"the sum of all distances may reach {pairs} times {problem.bound:g}, and ends at {LARGEST_FLOAT64:g}"
    if kind.name == "float32" and 0 < problem.smallest_weight < SMALLEST_FLOAT32:
        return f"the smallest weight is {problem.smallest_weight:g}; float32 loses digits below {SMALLEST_FLOAT32:g}"
    return None


def _judge(candidate: Candidate, setting: Setting, options: Options) -> Candidate:
    """Return the candidate, rejected if it does not suit, does not fit, or runs on the wrong device."""
    wrong = setting.unsuitable[candidate.algorithm]
    if wrong is None and options.device == "cuda" and candidate.device == "cpu":
        wrong = "runs on the CPU, and device cuda was asked for"
    if wrong is None and not _fits(candidate, setting.machine):
        wrong = next((shortage.text for shortage in shortages(candidate, setting)), None)
    return candidate if wrong is None else changed(candidate, feasible=False, rejected=wrong)


def _fits(candidate: Candidate, machine: Machine) -> bool:
    """Return whether a machine without a GPU and without workers has enough memory and disk for a candidate.

    For all other machines this returns False, and the candidate has to be checked in full.
    """
    alone = machine.cuda is None and machine.workers is None
    return alone and candidate.memory <= machine.memory and (machine.disk is None or candidate.disk <= machine.disk)


def _nothing_suits(setting: Setting, options: Options, candidates: list[Candidate]) -> InvalidRequest:
    """Return the error where none of the algorithms that this machine or its workers run can solve the problem."""
    where = "workers of a Dask scheduler" if setting.machine.workers is not None else f"device {options.device}"
    known = dict.fromkeys(c.algorithm for c in candidates)
    if options.algorithm != "auto" and options.algorithm not in known:
        message = f"algorithm {options.algorithm} does not run on {where}, which run {', '.join(known)}"
        return InvalidRequest(message, field="algorithm")
    if setting.problem.max_hops is not None:
        return InvalidRequest(
            f"{unsuitable(next(iter(known)), setting.problem)}, which does not run on {where}", field="max_hops"
        )
    return InvalidRequest(f"no algorithm that runs on {where} can solve this problem", field="algorithm")


def _device_reason(best: Candidate, machine: Machine, options: Options) -> str:
    """Return the device of ``best``, and why it was selected, in a sentence."""
    if machine.workers is not None:
        count, many = machine.workers.threads, "s" if best.workers > 1 else ""
        each = f"{count} thread{'s' if count > 1 else ''} each" if best.device == "cpu" else "one GPU each"
        return f"{best.workers} worker{many} of a Dask scheduler on {machine.workers.name}, {each}, all that there are"
    if best.device == "cuda" and machine.cuda is not None:
        cuda, each = machine.cuda, ""
        name = cuda.name
        if best.devices > 1:
            name, each = f"{best.devices} of {cuda.name}", " each"
        return f"{name}, {gib(best.device_memory)} of {gib(cuda.memory)} of its memory{each}"
    if options.device == "cpu":
        return "the CPU was asked for"
    if machine.cuda is None:
        return f"the CPU: {machine.no_cuda}"
    return f"the CPU is predicted to be faster than {machine.cuda.name}, or the only one that can do it"


def _reason(best: Candidate, others: list[Candidate], options: Options) -> str:
    cost = f"{about_seconds(best.seconds)} of solving and {gib(best.memory)} of memory"
    if best.device_memory:
        cost += f", {gib(best.device_memory)} of the GPU's"
    if best.from_targets:
        cost += ", searching from the targets, which are fewer"
    if options.algorithm != "auto":
        return f"{best.algorithm} was asked for: {cost}"
    rivals = [c for c in others if c.feasible]
    if not rivals:
        return f"{best.algorithm} is the only algorithm that suits and fits: {cost}"
    rival = f"{rivals[0].algorithm}{_where(rivals[0], best)}, {seconds_text(rivals[0].seconds)}"
    return f"{best.algorithm} is the fastest that fits: {cost}; next is {rival}"


def _fewer_reason(used: Machine, machine: Machine) -> str:
    """Return words that say that fewer threads are used than there are; an empty text if all are used."""
    if used.threads == machine.threads:
        return ""
    each = "thread" if used.threads == 1 else "threads"
    return f"; on {used.threads} {each} of {machine.threads}, because memory is short for the buffers of more"


def _lost(candidate: Candidate, best: Candidate, options: Options) -> Candidate:
    """Return a candidate that was not selected, with the reason."""
    if not candidate.feasible:
        return candidate
    if options.algorithm not in ("auto", candidate.algorithm):
        return changed(candidate, rejected=f"{best.algorithm} was asked for")
    slower = candidate.seconds / best.seconds if best.seconds else 1
    name = f"{best.algorithm}{_where(best, candidate)}"
    if slower < 1.05:
        return changed(candidate, rejected=f"no faster than {name}")
    times = f"{slower:,.0f}" if slower >= 10 else f"{slower:.1f}"
    return changed(candidate, rejected=f"{times} times the time of {name}")


def _where(candidate: Candidate, other: Candidate) -> str:
    """Return words for the device and the tier of a candidate, as far as ``other`` has another device or tier."""
    device = "" if candidate.device == other.device else f" on {candidate.device}"
    tier = "" if candidate.tier == other.tier or "device" in (candidate.tier, other.tier) else candidate.tier
    return f"{device} in the {tier} tier" if tier else device
