"""Solved matrices in memory, and stores that are sound but for their numbers, made by the product's own writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api.solve import make_plan, solve, store_attributes
from engine.model.dtypes import WORK_TYPES
from engine.model.problem import Options
from engine.model.rows import ArraySink
from storage.graph.graph import Graph
from storage.matrix.reader import Matrix, MatrixSpec, create_matrix, open_matrix

Array = npt.NDArray[Any]


@dataclass
class Solved:
    """A solved matrix in memory, with what routes and verification ask of a store."""

    array: Array
    of: Graph
    options: Options
    path, semiring = "memory", "min-plus"
    also = MappingProxyType[str, Any]({})

    def __post_init__(self) -> None:
        every = np.arange(self.of.n)
        asked = self.options
        self.sources = every if asked.sources is None else np.array(asked.sources, np.int64)
        self.targets = every if asked.targets is None else np.array(asked.targets, np.int64)
        self.attributes = {
            "targets": "all" if asked.targets is None else "subset", "max_hops": asked.max_hops, "cutoff": asked.cutoff
        }  # fmt: skip
        self.n, self.labels, self.dtype, self.shape = self.of.n, self.of.labels, self.array.dtype, self.array.shape
        self.unreachable = WORK_TYPES[self.dtype.name].sentinel()

    def graph(self) -> Graph:
        return self.of

    def row(self, source: int) -> Array:
        return self.array[self.sources.tolist().index(source)]

    def rows(self, sources: npt.NDArray[np.int64]) -> Array:
        return self.array[[self.sources.tolist().index(source) for source in sources]]

    def entries(self, sources: list[int], targets: list[int]) -> Array:
        columns = self.targets.tolist()
        return np.array([self.row(u)[columns.index(v)] for u, v in zip(sources, targets, strict=True)])


def solved(graph: Graph, options: Options) -> Solved:
    """Solve into memory."""
    plan = make_plan(graph, options)
    sink = ArraySink(plan.shape, plan.dtype)
    solve(graph, plan, options, sink)
    return Solved(sink.array, graph, options)


def sealed(path: str | Path, graph: Graph, change: Callable[[Array], None] = lambda _: None, **options: Any) -> Matrix:
    """Solve, ``change`` the entries in place, seal them at ``path`` and open the store."""
    asked = Options(threads=1, device="cpu", **options)
    plan = make_plan(graph, asked)
    sink = ArraySink(plan.shape, plan.dtype)
    outcome = solve(graph, plan, asked, sink)
    change(sink.array)
    sides = {
        name: None if given is None else np.array(given, np.int64)
        for name, given in (("sources", asked.sources), ("targets", asked.targets))
    }
    kind = WORK_TYPES[plan.dtype]
    with create_matrix(
        path, graph, MatrixSpec(kind.dtype, kind.unreachable, attributes=store_attributes(graph, plan), **sides)
    ) as writer:
        writer.write(0, 0, sink.array)
        writer.seal(outcome.summary)
    return open_matrix(path)
