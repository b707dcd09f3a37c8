"""Building, naming, digesting and storing graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import Conflict, InvalidGraph, NegativeCycle, NotFound, StorageFailed
from storage.graph import cleaning
from storage.graph.graph import Counts, Graph, Receipt, build_graph, graph_digest, index_of, load_graph, save_graph

RECEIPT = Receipt("edges", "gzip", 3, 1, 2, 0, "length", ("one", "two"))


def arcs_of(graph: Graph) -> list[tuple[object, object, float]]:
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    names = graph.labels.tolist()
    rows = zip(tails.tolist(), graph.heads.tolist(), graph.weights.tolist(), strict=True)
    return [(names[u], names[v], w) for u, v, w in rows]


def test_minus_zero_is_zero() -> None:
    one, other = (build_graph([0, 1], [1, 0], [zero, 0.5], directed=True)[0] for zero in (0.0, -0.0))
    assert not np.signbit(other.weights).any()
    assert graph_digest(one) == graph_digest(other)


def test_bare_arcs_have_the_vertices_that_occur() -> None:
    graph, counts = build_graph([5, 70, 5], [70, 2**40, 5], [3, 4, 9], directed=True)
    assert graph.labels.tolist() == [5, 70, 2**40]
    assert arcs_of(graph) == [(5, 70, 3), (70, 2**40, 4)]
    assert counts == Counts(self_loops=1, parallel_arcs=0, infinite_arcs=0)
    assert (graph.heads.dtype, graph.indptr.dtype, graph.labels.dtype) == (np.int32, np.int64, np.int64)


def test_a_vertex_that_has_only_a_self_loop_stays() -> None:
    graph, _ = build_graph([7], [7], None, directed=True)
    assert (graph.n, graph.m, graph.labels.tolist()) == (1, 0, [7])


def test_declared_vertices_without_arcs_stay() -> None:
    graph, _ = build_graph([0], [1], None, n=4, directed=True)
    assert (graph.n, graph.m, graph.indptr.tolist()) == (4, 1, [0, 1, 1, 1, 1])


def test_parallel_arcs_take_the_minimum_also_in_long_runs() -> None:
    graph, counts = build_graph([0, 0, 0, 1, 0, 1], [1, 1, 1, 0, 2, 0], [5, 2, 9, 4, 1, 3], n=3, directed=True)
    assert arcs_of(graph) == [(0, 1, 2), (0, 2, 1), (1, 0, 3)]
    assert counts.parallel_arcs == 3


def test_the_minimum_is_taken_after_mirroring() -> None:
    graph, counts = build_graph([0, 1], [1, 0], [5, 3], n=2, directed=False)
    assert arcs_of(graph) == [(0, 1, 3), (1, 0, 3)]
    assert (graph.m, counts.parallel_arcs) == (1, 1)


def test_mirrored_entries_are_not_mirrored_again() -> None:
    graph, counts = build_graph([0, 1], [1, 0], [5, 5], n=2, directed=False, mirrored=True)
    assert (graph.m, counts.parallel_arcs) == (1, 0)


@pytest.mark.parametrize("seed", range(40))
def test_of_parallel_arcs_the_first_by_weight_and_quantities_is_kept(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, count, parallel = int(draw.integers(1, 9)), int(draw.integers(0, 60)), ("least", "greatest")[seed % 2]
    tails, heads, weights, first = (draw.integers(0, size, count) for size in (n, n, 3, 3))
    second = draw.integers(0, 3, count) / 4
    best: dict[tuple[int, int], tuple[float, int, float]] = {}
    for u, v, w, a, b in zip(*(x.tolist() for x in (tails, heads, weights, first, second)), strict=True):
        mine = (-w if parallel == "greatest" else w, a, b)
        if u != v:
            best[u, v] = min(best.get((u, v), mine), mine)
    graph, counts = build_graph(
        tails, heads, weights, n=n, directed=True, parallel=parallel, quantities={"a": first, "b": second}
    )
    ends = list(zip(np.repeat(np.arange(n), np.diff(graph.indptr)).tolist(), graph.heads.tolist(), strict=True))
    sign = -1 if parallel == "greatest" else 1
    found = zip(*(x.tolist() for x in (sign * graph.weights, *graph.quantities.values())), strict=True)
    assert dict(zip(ends, found, strict=True)) == best
    assert ends == sorted(best)
    assert counts.parallel_arcs == np.count_nonzero(tails != heads) - len(best)


def test_an_explicit_zero_is_an_arc() -> None:
    graph, _ = build_graph([0], [1], [0.0], n=2, directed=True)
    assert arcs_of(graph) == [(0, 1, 0)]


def test_infinity_is_no_arc_and_does_not_hide_whole_weights() -> None:
    graph, counts = build_graph([0, 1], [1, 2], [np.inf, 2.0], n=3, directed=True)
    assert arcs_of(graph) == [(1, 2, 2)]
    assert counts.infinite_arcs == 1
    assert graph.integral


@pytest.mark.parametrize(
    ("weights", "kind"),
    [
        ([1, 2], np.int32),
        ([1.0, 2.0], np.int32),
        ([2**31, 1], np.int64),
        ([-(2**31), 1], np.int32),
        ([float(2**53), 1.0], np.int64),
        ([1.5, 2.0], np.float64),
        ([1e300, 2.0], np.float64),
    ],
)
def test_weights_take_the_narrowest_type(weights: list[float], kind: type) -> None:
    graph, _ = build_graph([0, 1], [1, 0], weights, n=2, directed=True)
    assert graph.weights.dtype == kind
    assert graph.weights.tolist() == weights


def test_merging_can_leave_only_whole_weights() -> None:
    graph, _ = build_graph([0, 0], [1, 1], [1.5, 1.0], n=2, directed=True)
    assert graph.weights.dtype == np.int32


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 2**53 + 1, -(2**53) - 1])
def test_what_is_no_length_is_refused(bad: float) -> None:
    with pytest.raises(InvalidGraph, match="weight"):
        build_graph([0], [1], [bad], n=2, directed=True)


def test_a_negative_self_loop_is_a_negative_cycle() -> None:
    with pytest.raises(NegativeCycle) as caught:
        build_graph([10, 20, 20], [20, 20, 20], [1, -2, -5], directed=True)
    assert (caught.value.cycle, caught.value.weight) == ([20], -5)


@pytest.mark.parametrize(("tails", "heads"), [([0], [3]), ([-1], [0])])
def test_indices_out_of_range_are_refused(tails: list[int], heads: list[int]) -> None:
    with pytest.raises(InvalidGraph, match=r"outside 0 \.\. 2"):
        build_graph(tails, heads, None, n=3, directed=True)


def test_columns_must_fit_together() -> None:
    with pytest.raises(InvalidGraph, match="same length"):
        build_graph([0], [1, 0], None, n=2, directed=True)
    with pytest.raises(InvalidGraph, match="whole numbers"):
        build_graph([0.5], [1.0], None, n=2, directed=True)
    with pytest.raises(InvalidGraph, match="numbers, not"):
        build_graph([0], [1], ["x"], n=2, directed=True)
    with pytest.raises(InvalidGraph, match="ascend"):
        build_graph([0], [1], None, labels=["b", "a"], directed=True)
    with pytest.raises(InvalidGraph, match="3 vertices, but 2 labels"):
        build_graph([0], [1], None, labels=["a", "b"], n=3, directed=True)


HUGE = 2**63


@pytest.mark.parametrize("values", [
    [HUGE], [1, HUGE], [-1, HUGE], (1, HUGE), [1, 2**64], [-1, -HUGE - 1],
    np.array([1, HUGE], np.uint64), np.array([1, HUGE], object), np.array([1, 2**64], object),
])  # fmt: skip
def test_whole_numbers_beyond_int64_are_refused(values: Any) -> None:
    ends = [1] * len(values)
    wrong = r"9223372036854775808|18446744073709551616|-9223372036854775809"
    for tails, heads, name in ((values, ends, "tails"), (ends, values, "heads")):
        with pytest.raises(InvalidGraph, match=rf"{name}: ({wrong}) is beyond the range of int64; use text labels"):
            build_graph(tails, heads, None, directed=True)
    with pytest.raises(InvalidGraph, match=rf"labels: ({wrong}) is beyond the range of int64; use text labels"):
        build_graph([0], [0], None, labels=values, directed=True)


@pytest.mark.parametrize("kind", [list, tuple, lambda v: np.array(v, object), lambda v: np.array(v, np.int64)])
def test_whole_numbers_up_to_the_ends_of_int64_keep_their_value_and_sign(kind: Any) -> None:
    values = [-HUGE, -1, 2, 10, HUGE - 1]
    graph, _ = build_graph(kind(values[:4]), kind(values[1:]), None, directed=True)
    assert graph.labels.dtype == np.int64
    assert graph.labels.tolist() == values
    graph, _ = build_graph([0, 1], [1, 2], None, labels=kind(values), directed=True)
    assert graph.labels.dtype == np.int64
    assert graph.labels.tolist() == values


@pytest.mark.parametrize("labels", [
    [1, "a"], np.array(["1", 2], object), np.array(["a", None], object), np.array([1.5, 2.5], object),
    np.array([b"a", b"b"], object), np.array([True, 2], object), (1, "a"),
])  # fmt: skip
def test_labels_of_several_kinds_are_refused(labels: Any) -> None:
    with pytest.raises(InvalidGraph, match="labels are either all whole numbers or all text, found"):
        build_graph([0], [1], None, labels=labels, directed=True)


def test_texts_in_an_object_array_are_labels() -> None:
    graph, _ = build_graph([0], [1], None, labels=np.array(["1", str(HUGE)], object), directed=True)
    assert graph.labels.tolist() == ["1", str(HUGE)]


def test_the_arrays_of_the_caller_stay_as_they_are() -> None:
    tails, heads, weights = np.array([1, 0, 0]), np.array([1, 1, 1]), np.array([1.0, 3.0, 2.0])
    copies = tails.copy(), heads.copy(), weights.copy()
    build_graph(tails, heads, weights, n=2, directed=False)
    assert all(np.array_equal(a, b) for a, b in zip((tails, heads, weights), copies, strict=True))


@pytest.mark.parametrize("spread", [1, 10**6])
def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    rng = np.random.default_rng(3)
    tails, heads = rng.integers(0, 60, 500) * spread, rng.integers(0, 60, 500) * spread
    weights = rng.integers(1, 50, 500) / 4
    whole, counts = build_graph(tails, heads, weights, directed=True)
    monkeypatch.setattr(cleaning, "CHUNK", 7)
    pieces, same = build_graph(tails, heads, weights, directed=True)
    assert graph_digest(whole) == graph_digest(pieces)
    assert counts == same
    best: dict[tuple[int, int], float] = {}
    for u, v, w in zip(tails.tolist(), heads.tolist(), weights.tolist(), strict=True):
        if u != v:
            best[u, v] = min(w, best.get((u, v), np.inf))
    assert arcs_of(whole) == [(u, v, w) for (u, v), w in sorted(best.items())]


def test_the_digest_depends_on_content_only() -> None:
    one, _ = build_graph([0, 1], [1, 2], [1, 2], n=3, directed=True)
    wide = replace(one, weights=one.weights.astype(np.int64))
    assert graph_digest(one) == graph_digest(wide)
    assert graph_digest(one).startswith("sha256:")
    others = [
        build_graph([0, 1], [1, 2], [1, 3], n=3, directed=True)[0],
        build_graph([0, 1], [1, 2], [1, 2], n=4, directed=True)[0],
        build_graph([0, 1], [1, 2], [1.0, 2.5], n=3, directed=True)[0],
        build_graph([0, 1], [1, 2], [1, 2], n=3, directed=False)[0],
        build_graph([0, 1], [1, 2], [1, 2], labels=["a", "b", "c"], directed=True)[0],
        build_graph([0, 1], [1, 2], [1, 2], labels=[1, 2, 3], directed=True)[0],
        build_graph([0, 2], [1, 1], [1, 2], n=3, directed=True)[0],
    ]
    digests = {graph_digest(graph) for graph in [one, *others]}
    assert len(digests) == len(others) + 1


def test_vertices_are_found_by_their_labels() -> None:
    numbers, _ = build_graph([5, 70], [70, 2**40], None, directed=True)
    assert [index_of(numbers, name) for name in (5, "70", " 1099511627776 ")] == [0, 1, 2]
    names, _ = build_graph([0, 1], [1, 2], None, labels=["AAA", "Å b", "ü"], directed=True)
    assert [index_of(names.labels, name) for name in ("AAA", "Å b", "ü ")] == [0, 1, 2]


@pytest.mark.parametrize("name", ["6", "x", "1.0", "", "9" * 30, "-5"])
def test_an_unknown_number_names_the_range(name: str) -> None:
    graph, _ = build_graph([5], [70], None, directed=True)
    with pytest.raises(NotFound, match=r"2 vertices are numbers from 5 to 70"):
        index_of(graph, name)


def test_an_unknown_name_names_the_range() -> None:
    graph, _ = build_graph([0], [1], None, labels=["AAE", "ZYL"], directed=True)
    with pytest.raises(NotFound, match=r"no vertex 'LHR'.*from 'AAE' to 'ZYL'"):
        index_of(graph, "LHR")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("Harbor", "Harbour"), ("harbour", "Harbour"), ("HARBOUR", "Harbour"), ("mill", "Mill"), ("Ökar", "ökar"),
     ("MARKT", "markt"), ("quite else", None), ("", None)],
)  # fmt: skip
def test_a_name_that_is_nearly_right_is_suggested(asked: str, meant: str | None):
    names = ["Harbour", "Mill", "Zoo", "markt", "ökar"]
    graph, _ = build_graph([0, 1, 2, 3], [1, 2, 3, 4], None, labels=names, directed=True)
    with pytest.raises(NotFound) as raised:
        index_of(graph, asked)
    said = str(raised.value)
    assert (f"'ökar'. Did you mean {meant!r}?" in said) if meant else said.endswith("'Harbour' to 'ökar'")


def test_no_vertices_at_all() -> None:
    graph, _ = build_graph([], [], None, n=0, directed=True)
    assert (graph.n, graph.m) == (0, 0)
    with pytest.raises(NotFound, match="no vertices"):
        index_of(graph, "1")


@pytest.mark.parametrize("labels", [None, ["a", "ß", "日本"], [-4, 0, 2**40]])
def test_a_stored_graph_comes_back(tmp_path: Path, labels: list[object] | None) -> None:
    graph, _ = build_graph([0, 1, 2], [1, 2, 0], [1.5, 2, 3], labels=labels, n=3, directed=False)
    save_graph(graph, RECEIPT, tmp_path / "deep" / "g")
    again, receipt = load_graph(tmp_path / "deep" / "g")
    assert graph_digest(again) == graph_digest(graph)
    assert receipt == RECEIPT
    assert (again.directed, again.weighted) == (graph.directed, graph.weighted)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["g"]


def test_large_arrays_are_mapped_not_read(tmp_path: Path) -> None:
    graph, _ = build_graph([0, 1], [1, 0], None, n=2, directed=True)
    save_graph(graph, RECEIPT, tmp_path / "g")
    again, _ = load_graph(tmp_path / "g")
    assert isinstance(again.heads, np.memmap)
    assert not again.heads.flags.writeable


def test_graphs_without_arcs_or_vertices_come_back(tmp_path: Path) -> None:
    for n in (0, 2):
        graph, _ = build_graph([], [], None, n=n, directed=True)
        save_graph(graph, RECEIPT, tmp_path / str(n))
        assert graph_digest(load_graph(tmp_path / str(n))[0]) == graph_digest(graph)


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    graph, _ = build_graph([0], [1], None, n=2, directed=True)
    save_graph(graph, RECEIPT, tmp_path / "g")
    with pytest.raises(Conflict, match="exists already"):
        save_graph(graph, RECEIPT, tmp_path / "g")


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = build_graph([0], [1], None, n=2, directed=True)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(StorageFailed, match="No space left"):
        save_graph(graph, RECEIPT, tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed(tmp_path: Path) -> None:
    graph, _ = build_graph([0, 1], [1, 0], None, n=2, directed=True)
    with pytest.raises(NotFound, match="no stored graph"):
        load_graph(tmp_path / "absent")
    save_graph(graph, RECEIPT, tmp_path / "short")
    np.save(tmp_path / "short" / "heads.npy", graph.heads[:1])
    save_graph(graph, RECEIPT, tmp_path / "gone")
    (tmp_path / "gone" / "weights.npy").unlink()
    save_graph(graph, RECEIPT, tmp_path / "text")
    (tmp_path / "text" / "graph.json").write_text("{")
    save_graph(graph, RECEIPT, tmp_path / "later")
    about = json.loads((tmp_path / "later" / "graph.json").read_text())
    (tmp_path / "later" / "graph.json").write_text(json.dumps({**about, "form": 99}))
    for name in ("short", "gone", "text", "later"):
        with pytest.raises(StorageFailed):
            load_graph(tmp_path / name)
