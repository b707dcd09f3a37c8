"""Predicted costs of searches from single sources on processors: Dijkstra's algorithm, and Johnson's."""

from __future__ import annotations

import math

from engine.model.plan import Candidate, Phase
from engine.model.problem import Problem
from engine.planning.constants import (
    CROWDED,
    CROWDED_BYTES,
    HEAP_BELOW,
    LANE_BLOCKS,
    LANE_BYTES,
    LATTICE,
    LATTICE_SIDE,
    LATTICE_WIDTH,
    POTENTIAL_PASSES,
)
from engine.planning.cost import Setting, preparing_seconds, search_candidate


def estimate(setting: Setting) -> Candidate:
    """Estimate one search per source, each of O(m + n log n); many searches are made side by side."""
    seconds, tried = abreast_seconds(setting), setting.trials.search
    return search_candidate(setting, "dijkstra", seconds=seconds, tried=tried)


def estimate_johnson(setting: Setting) -> Candidate:
    """Estimate Johnson's algorithm: potentials by Bellman-Ford, then one search per source over reduced weights."""
    potentials = Phase("potentials", POTENTIAL_PASSES * setting.problem.arcs / setting.machine.search_rate)
    seconds, tried = abreast_seconds(setting), setting.trials.search
    return search_candidate(setting, "johnson", seconds=seconds, tried=tried, before=(potentials,))


def search_seconds(setting: Setting) -> float:
    """Return the predicted seconds per source if sources are searched one by one."""
    problem = setting.problem
    return (problem.arcs + problem.n * math.log2(problem.n + 2) / 4) / setting.machine.search_rate


def abreast_seconds(setting: Setting) -> float:
    """Return the predicted seconds per source if all wanted sources are searched, side by side where that is faster."""
    problem, machine = setting.problem, setting.machine
    singly, searches = search_seconds(setting), min(problem.rows, problem.columns)
    if searches < HEAP_BELOW:
        return singly
    exact = problem.decimal and setting.kind.name == "float32" and problem.cutoff is None
    lanes = LANE_BYTES // (setting.kind.itemsize if setting.kind.integer or exact else 8)
    blocks = -(-searches // lanes) / searches
    scans = (problem.arcs + 4 * problem.n) * blocks / LANE_BLOCKS * lattice_passes(problem) * _crowding(setting)
    return min(singly, scans / machine.search_rate + preparing_seconds(setting) / searches)


def _crowding(setting: Setting) -> float:
    """Return the factor by which threads slow each other down, because their labels do not fit into own caches."""
    large = setting.problem.n * LANE_BYTES >= CROWDED_BYTES
    return 1 + CROWDED * (setting.machine.threads - 1) * large


def lattice_passes(problem: Problem) -> float:
    """Return the factor by which searches side by side relax arcs more often than on graphs that are no lattices.

    On a lattice with weights, paths of few arcs are often not the shortest paths, so tentative distances are corrected
    several times.  The wider the lattice is, the more often they are corrected.
    """
    if problem.unit or not is_lattice(problem):
        return 1.0
    width = problem.n / problem.across
    return max(1.0, min(width / LATTICE_WIDTH, math.sqrt(problem.n) / LATTICE_SIDE))


def is_lattice(problem: Problem) -> bool:
    """Return whether the hops across a graph are as many as in a lattice; False if they were not computed."""
    return bool(problem.across >= max(1, LATTICE * math.sqrt(problem.n)))
