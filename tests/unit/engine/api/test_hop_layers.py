"""Paths through layers of Bellman and Ford: the same path with any budget, and never more layers than it allows."""

from typing import Any

import numpy as np
import pytest

from engine.api import hop_layers as module
from engine.api.hop_layers import Layers
from engine.api.reference import Reference
from storage.errors import DoesNotFit
from storage.graph.graph import build_graph


def random_path(seed: int, n: int = 60) -> tuple[Reference, int]:
    """A long path whose arcs are short, and others that are long, so that hop limits matter."""
    rng = np.random.default_rng(seed)
    tails = np.concatenate([np.arange(n - 1), rng.integers(0, n, n)])
    heads = np.concatenate([np.arange(1, n), rng.integers(0, n, n)])
    weights = np.concatenate([rng.random(n - 1), 40 * rng.random(n)])
    return Reference(build_graph(tails, heads, weights, n=n, directed=True)[0]), n


def never(_found: float, _arcs: int) -> bool:
    return False


@pytest.mark.parametrize("capacity", [15, 17, 30, 59])
def test_fewer_layers_tell_the_same_path(capacity: int) -> None:
    for seed in range(5):
        reference, n = random_path(seed)
        for hops in (1, 7, 8, 9, 31, n - 1):
            whole = Layers(reference, n, 10**9).path(0, n - 1, hops, never)
            assert Layers(reference, n, capacity * 8 * n).path(0, n - 1, hops, never) == whole
            assert whole is None or len(whole) <= hops + 1


def test_what_is_kept_stays_within_the_budget() -> None:
    n, held = 97, []

    class Watched(Layers):
        def _walk(self, layers: Any, path: Any) -> None:
            held.append(len(layers))
            super()._walk(layers, path)

        def _back(self, layer: Any, steps: int, path: Any, capacity: int) -> None:
            assert capacity > 0
            held.append(self._capacity - capacity)  # kept by those who called
            super()._back(layer, steps, path, capacity)

    graph = build_graph(np.arange(n - 1), np.arange(1, n), np.ones(n - 1), n=n, directed=True)[0]
    capacity = 16
    path = Watched(Reference(graph), n, capacity * 8 * n).path(0, n - 1, n - 1, never)
    assert path == list(range(n))
    assert max(held) <= capacity


def test_capacity_is_what_is_promised() -> None:
    """With r layers kept, every number of steps up to the promise works, and the one beyond is refused."""
    for capacity in (2, 3, 4, 9, 10, 13):
        n = module._reach(capacity) + 3
        graph = build_graph(np.arange(n - 1), np.arange(1, n), np.ones(n - 1), n=n, directed=True)[0]
        layers = Layers(Reference(graph), n, capacity * 8 * n)
        for arcs in range(module._reach(capacity) + 1):
            assert layers.path(0, arcs, n, never) == list(range(arcs + 1))
        with pytest.raises(DoesNotFit, match="layers"):
            layers.path(0, module._reach(capacity) + 1, n, never)


def test_cycles_that_only_rounding_makes_are_cut() -> None:
    assert module._simple([4, 1, 2, 3, 1, 5]) == [4, 1, 5]
    assert module._simple([4, 1, 2, 1, 3, 2, 6]) == [4, 1, 3, 2, 6]
