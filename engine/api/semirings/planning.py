"""Plans solves of semirings other than min-plus: checks the request, and finds type, algorithm, memory and time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engine.algorithms.semirings.components import most_needed
from engine.algorithms.semirings.products import lanes_bytes
from engine.algorithms.semirings.solving import (
    MERGED,
    OF_PRODUCTS,
    PIECE,
    PRODUCT,
    REACHED,
    TREE,
    algorithm_of,
    rows_bytes,
)
from engine.api.planning import store_bytes
from engine.api.semirings import by_parts
from engine.execution.survey import survey
from engine.graph.profile import GraphProfile
from engine.graph.selection import Rectangle, check_vertices
from engine.model.dtypes import PRODUCTS
from engine.model.plan import Candidate, Phase, Plan
from engine.model.problem import Machine, Options, Problem, changed
from engine.planning import cost_dense, cost_partitioned
from engine.planning.binding import bind_plan
from engine.planning.constants import CREATE_SECONDS, SEAL_SECONDS, START_SECONDS
from engine.planning.cost import Setting, batch_rows, most_threads
from engine.planning.refusal import about_seconds, gib
from engine.streaming.checkpoint import resumable
from storage.errors import Conflict, DoesNotFit, InvalidRequest
from storage.graph.graph import Graph
from storage.matrix.grid import layout
from storage.matrix.reader import matrix_bytes
from storage.semirings import PARTS, SEMIRINGS, Semiring, semiring_of

#: Processor seconds of each algorithm, measured by benchmarks/semirings.py on two shared cores of a virtual machine.
#: ENTRY: for each entry of the result.  SEARCHED: for each arc and vertex in each row.  PREPARED: for each arc and
#: vertex once in a solve.
ENTRY: Final = {TREE: 4.5e-9, MERGED: 1.5e-9, PRODUCT: 2.5e-9, REACHED: 1.5e-9}
SEARCHED: Final = {TREE: 0.0, MERGED: 5.0e-10, PRODUCT: 6.0e-9, REACHED: 1.0e-10}
PREPARED: Final = {TREE: 5.0e-7, MERGED: 4.5e-7, PRODUCT: 5.0e-9, REACHED: 4.5e-8}
#: Searches of products are slower by the factor LARGE if the products of a block of sources take over LARGE_BYTES, and
#: those of bottlenecks if the graph is too large for blocks.
LARGE: Final = 6
LARGE_BYTES: Final = 2**24
#: Processor seconds to find and discard an arc of a dense graph that no bottleneck needs.
SIFTED: Final = 2.0e-9
#: Bytes of working memory: _SPACE for each vertex in each thread, _ONCE for each arc and each vertex of the graph.
_SPACE, _ONCE = 32, 72
_STORED_TYPES: Final = ("float32", "float64")


def plan_semiring(
    graph: Graph | GraphProfile, options: Options, *, out: Path | None = None, resume: bool = False
) -> Plan:
    """Plan a solve of a semiring, and refuse it before any work is done if it cannot succeed.

    Args:
        graph: the graph, or its profile.
        options: the user's options.
        out: path of the store; None if the result stays in memory.
        resume: whether to continue from the checkpoint at ``out``, if there is one.

    Raises:
        InvalidRequest: an option or the graph does not suit the semiring.
        Conflict: the checkpoint is of another semiring.
        DoesNotFit: memory or disk is too small.
    """
    profile = GraphProfile.of(graph)
    graph = profile.graph
    semiring = checked(graph, options)
    found = resumable(out, resume=resume)
    if found is not None and semiring_of(found.identity) != semiring.name:
        raise Conflict(
            f"{found.target} has a checkpoint of semiring {semiring_of(found.identity)}, and {semiring.name} is asked "
            "for; leave --semiring as it was, or begin anew (--overwrite)"
        )
    kind, why = _type_of(graph, semiring, options.dtype)
    rectangle = Rectangle.of(options, graph.n)
    shape, itemsize = (len(rectangle.rows), len(rectangle.columns)), np.dtype(kind).itemsize
    disk = 0 if out is None else store_bytes(graph, matrix_bytes(shape, itemsize))
    machine = survey(out=out, memory=options.memory, threads=options.threads)
    if semiring.name == "max-times":
        kept = None if found is None else str(found.record["algorithm"])
        machine, candidate = _products(profile, options, machine, (shape, disk), kept)
    else:
        machine, candidate = _searched(algorithm_of(semiring, graph), graph, machine, (shape, itemsize, disk))
    there = None if machine.disk is None else machine.disk + (0 if found is None else found.bytes)
    _check_fits(semiring, candidate.memory, machine.memory, "memory", "fewer sources or a larger --memory")
    if there is not None:
        _check_fits(semiring, disk, there, "disk", "fewer sources or targets, or a larger disk")
    seconds = candidate.seconds + START_SECONDS + (0 if out is None else CREATE_SECONDS + SEAL_SECONDS)
    candidate = changed(candidate, seconds=seconds)
    plan = Plan(
        algorithm=candidate.algorithm,
        dtype=kind,
        device="cpu",
        threads=machine.threads,
        shape=shape,
        memory=candidate.memory,
        disk=disk,
        seconds=seconds,
        reason=f"{candidate.algorithm} finds the {semiring.title} ({semiring.name}): {about_seconds(seconds)} and "
        f"{gib(candidate.memory)} of memory",
        dtype_reason=why,
        device_reason="other semirings than min-plus are solved on processors",
        phases=candidate.phases,
        candidates=(candidate,),
        batch=candidate.batch,
        semiring=semiring.name,
    )
    return bind_plan(plan, graph, options)


def _searched(
    algorithm: str, graph: Graph, machine: Machine, result: tuple[tuple[int, int], int, int]
) -> tuple[Machine, Candidate]:
    """Return the machine with as many threads as memory suffices for, and the candidate of an algorithm that finds rows
    without parts.

    Args:
        algorithm: the name of the algorithm.
        graph: the graph.
        machine: the machine.
        result: the shape of the result, the bytes of an entry, and the bytes of the store.
    """
    shape, itemsize, disk = result
    machine = most_threads(machine, lambda on: _batch(algorithm, graph, shape, itemsize, on)[1])
    batch, memory = _batch(algorithm, graph, shape, itemsize, machine)
    phases = _phases(algorithm, graph, shape, machine)
    seconds = sum(phase.seconds for phase in phases)
    return machine, Candidate(algorithm, memory, disk, seconds, phases, batch=batch)


def _products(
    profile: GraphProfile, options: Options, machine: Machine, result: tuple[tuple[int, int], int], kept: str | None
) -> tuple[Machine, Candidate]:
    """Return the machine with as many threads as memory suffices for, and the candidate for products.

    Args:
        profile: the graph.
        options: the user's options.
        machine: the machine.
        result: the shape of the result, and the bytes of the store.
        kept: the algorithm that has found the rows of a checkpoint; None without one.

    Raises:
        InvalidRequest: the options ask for an algorithm that does not suit the graph.
    """
    opened, (shape, disk), asked = profile.open(Rectangle.of(options, profile.graph.n))[0], result, options.algorithm
    name = OF_PRODUCTS.get(kept if asked == "auto" and kept is not None else asked, "auto")
    problem: Problem | None
    if not opened.graph.arcs and name == "auto":
        name, problem = PRODUCT, None
    elif name == "auto":
        name, problem = by_parts.algorithm_for(opened, shape[0], machine)
    else:
        problem = by_parts.problem_for(opened, shape[0], machine, name)
    plain = _searched(PRODUCT, profile.graph, machine, (shape, PRODUCTS.itemsize, disk))
    if name == PRODUCT:
        return plain
    if problem is None:
        raise InvalidRequest(
            f"algorithm {asked} cannot be used: products may be smaller than float64 holds with all its digits, or the "
            "parts of this graph are too large; leave out --algorithm",
            field="algorithm",
        )

    def over(on: Machine) -> Candidate:
        setting = Setting(problem, on, PRODUCTS, disk)
        if name == PARTS:
            return cost_partitioned.estimate(setting)
        whole, batch = cost_dense.estimate_recursive(setting), plain[1].batch
        return changed(
            whole, algorithm=name, batch=batch, memory=whole.memory + 2 * batch * shape[1] * PRODUCTS.itemsize
        )

    machine = most_threads(machine, lambda on: over(on).memory)
    found = over(machine)
    return plain if asked == "auto" and kept is None and found.memory > machine.memory else (machine, found)


def _batch(algorithm: str, graph: Graph, shape: tuple[int, int], itemsize: int, machine: Machine) -> tuple[int, int]:
    """Return the number of rows of a batch (whole tiles), and the bytes of memory that the solve takes."""
    tile, threads = layout(shape, itemsize).tile[0] if shape[0] else 1, machine.threads
    memory = machine.resident + _ONCE * (graph.n + graph.arcs) + threads * rows_bytes(algorithm, graph, itemsize)
    memory += (_SPACE + 8) * threads * (graph.n + graph.terminals)
    rows = batch_rows(shape[1], shape[0], itemsize, threads=threads, memory=machine.memory, beside=memory)
    batch = max(tile, min(rows, shape[0]))
    return batch, memory + 2 * batch * shape[1] * itemsize


def checked(graph: Graph, options: Options) -> Semiring:
    """Return the semiring of the options, after checking that the other options and the graph suit it.

    Args:
        graph: the graph.
        options: the user's options.

    Raises:
        InvalidRequest: an option suits distances only; or a weight, or the way in which parallel arcs were merged, does
            not suit the semiring.
    """
    semiring = SEMIRINGS[options.semiring]
    only = f"and semiring {semiring.name} is asked for"
    for field, wanted, instead in (
        ("device", options.device != "cuda", "use --device cpu"),
        ("executor", options.executor == "local" and options.scheduler is None, "use --executor local"),
        ("max_hops", options.max_hops is None, "leave out --max-hops"),
        ("cutoff", options.cutoff is None, "leave out --cutoff, and compare the values of the result"),
        ("also", not options.also, "leave out --also"),
    ):
        if not wanted:
            value = getattr(options, field)
            raise InvalidRequest(f"{field} {value} is for distances (min-plus) only, {only}; {instead}", field=field)
    suits = tuple(OF_PRODUCTS) if semiring.name == "max-times" else (algorithm_of(semiring, graph),)
    if options.algorithm not in ("auto", *suits):
        raise InvalidRequest(
            f"algorithm {options.algorithm} cannot be used: semiring {semiring.name} of this graph is solved by "
            f"{', '.join(suits)}; leave out --algorithm",
            field="algorithm",
        )
    check_vertices("sources", options.sources, graph.labels)
    check_vertices("targets", options.targets, graph.labels)
    _check_graph(graph, semiring)
    return semiring


def _check_graph(graph: Graph, semiring: Semiring) -> None:
    """Raise InvalidRequest if parallel arcs that the semiring needs were dropped, or if a weight does not suit it."""
    needed = semiring.parallel
    if needed is not None and graph.parallel != needed and graph.weighted:
        raise InvalidRequest(
            f"semiring {semiring.name} needs the {needed} of parallel arcs, and the graph was read with the "
            f"{graph.parallel} of them; read it again with parallel {needed} (--parallel {needed}; "
            f"read_graph, build_graph and uploads: parallel={needed!r})",
            field="parallel",
        )
    if semiring.name != "max-times" or not graph.arcs:
        return
    wrong = np.flatnonzero(~((graph.weights > 0) & (graph.weights <= 1)))
    if len(wrong):
        tail = int(np.searchsorted(graph.indptr, wrong[0], side="right")) - 1
        ends = f"from {graph.labels[tail]} to {graph.labels[graph.heads[wrong[0]]]}"
        raise InvalidRequest(
            f"semiring max-times multiplies probabilities, above 0 and at most 1, and {len(wrong):,} arcs weigh "
            f"something else: the first leads {ends} and weighs {graph.weights[wrong[0]]}; leave out arcs of "
            "probability 0",
            field="weight",
        )


def _type_of(graph: Graph, semiring: Semiring, asked: str) -> tuple[str, str]:
    """Return the type of the values, and the reason; raise InvalidRequest if ``asked`` is a type that does not suit."""
    suits: tuple[str, ...]
    if semiring.name == "lor-land":
        suits, why = ("uint8",), "1 where there is a path, else 0"
    elif semiring.name == "max-times":
        suits, why = ("float64",), "products are rounded once a multiplication, in float64"
    else:
        with np.errstate(over="ignore"):
            single = np.array_equal(graph.weights.astype(np.float32).astype(np.float64), graph.weights)
        suits = _STORED_TYPES if single else ("float64",)
        why = f"every value is a weight of the graph, and {suits[0]} holds all of them exactly"
    if asked not in ("auto", *suits):
        raise InvalidRequest(
            f"dtype {asked} cannot be used: {why}; semiring {semiring.name} of this graph takes {', '.join(suits)}",
            field="dtype",
        )
    return (suits[0] if asked == "auto" else asked), why


def _phases(algorithm: str, graph: Graph, shape: tuple[int, int], machine: Machine) -> tuple[Phase, ...]:
    """Return the phases of a solve with their predicted seconds."""
    arcs = min(graph.arcs, most_needed(graph.n)) if algorithm == MERGED else graph.arcs
    size = graph.n + arcs
    rows = -(-shape[0] // PIECE) * PIECE if algorithm == REACHED else shape[0]
    block = lanes_bytes(graph.n)
    far = (algorithm == PRODUCT and block > LARGE_BYTES) or (algorithm == MERGED and not block)
    slower = LARGE if far else 1
    work = rows * (SEARCHED[algorithm] * slower * size + ENTRY[algorithm] * shape[1])
    writing = 0 if machine.disk is None else shape[0] * shape[1] * 4 / machine.write_rate
    return Phase("prepare", PREPARED[algorithm] * size + SIFTED * (graph.arcs - arcs)), Phase(
        "search", work / machine.threads + writing
    )


def _check_fits(semiring: Semiring, needed: int, available: int, resource: str, instead: str) -> None:
    if needed > available:
        raise DoesNotFit(
            f"semiring {semiring.name} needs {gib(needed)} of {resource} for this matrix, and {gib(available)} may be "
            f"used; ask for {instead}",
            resource=resource,
            needed=needed,
            available=available,
        )
