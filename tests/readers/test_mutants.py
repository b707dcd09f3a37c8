"""Files of every format with random damage: each is a valid graph or a refusal, in bounded time and memory.

``APSP_MUTANTS=FIRST:LAST`` repeats some of the long campaign, as its failures say.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from storage.errors import ApspError
from storage.graph.graph import Graph, graph_digest
from storage.readers import read_graph
from storage.readers.numbers import _parse_words
from storage.readers.tables.table import ArcTable
from tests.mutants import made, mutate, real

SECONDS, MEMORY = 5, 1 << 30
FEW, MANY = 400, 10_000


def check_valid(graph: Graph) -> None:
    """All that a graph promises of itself."""
    assert len(graph.labels) == graph.n
    assert graph.indptr[0] == 0
    assert graph.indptr[-1] == graph.arcs == len(graph.weights)
    assert (np.diff(graph.indptr) >= 0).all()
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    assert not (tails == graph.heads).any()
    assert ((graph.heads >= 0) & (graph.heads < graph.n)).all()
    assert np.isfinite(graph.weights).all()
    keys = tails * max(1, graph.n) + graph.heads
    assert (np.diff(keys) > 0).all()
    assert (graph.labels[1:] > graph.labels[:-1]).all()
    if not graph.directed:
        order = np.argsort(graph.heads.astype(np.int64) * max(1, graph.n) + tails)
        assert np.array_equal(graph.heads[order], tails)
        assert np.array_equal(graph.weights[order], graph.weights)


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def outcome(path: Path) -> tuple[str, str]:
    """What became of a file: its digest, or the refusal; both with the class of what happened."""
    try:
        graph, receipt = read_graph(path)
    except ApspError as error:
        return type(error).__name__, str(error) or "no sentence"
    check_valid(graph)
    return "read", f"{receipt.format} {graph_digest(graph)}"


def campaign(corpus: dict[str, bytes], seeds: range, path: Path) -> Counter[str]:
    """Read the mutant of every seed; each failure names its seed and leaves the file."""
    names, contents = sorted(corpus), [corpus[name] for name in sorted(corpus)]
    counts: Counter[str] = Counter()
    for seed in seeds:
        draw = random.Random(seed)
        name = draw.choice(names)
        file = path / f"{seed}-{name}"
        file.write_bytes(mutate(name, corpus[name], contents, draw))
        Path("/proc/self/clear_refs").write_text("5")
        before, begin = status("VmRSS"), time.process_time()
        kind, what = outcome(file)
        taken, grown = time.process_time() - begin, status("VmHWM") - before
        assert taken < SECONDS, f"seed {seed}, {name}: {taken:.1f} s"
        assert grown < MEMORY, f"seed {seed}, {name}: {grown:,} bytes"
        assert what != "no sentence", f"seed {seed}, {name}"
        careful = outcome_without_the_fast_way(file)
        assert careful == (kind, what), f"seed {seed}, {name}: {careful} line by line, {kind, what} by columns"
        counts[kind] += 1
        file.unlink()
    return counts


def outcome_without_the_fast_way(path: Path) -> tuple[str, str]:
    """The same, with every row and number read one by one."""
    import storage.readers.instances.matrix_market as matrix_market
    import storage.readers.instances.metis as metis
    import storage.readers.instances.tsplib as tsplib

    def careful(data: bytes, line: int, comments: str = "", *, what: str = "weight") -> object:
        return _parse_words(data, line, comments, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArcTable, "_parse_columns", lambda self, data: None)
        for module in (matrix_market, metis, tsplib):
            patch.setattr(module, "parse_numbers", careful)
        return outcome(path)


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure peak memory"
)


@pytest.fixture(scope="module")
def corpus() -> dict[str, bytes]:
    return made()


@needs_linux
def test_what_is_made_can_be_read(tmp_path: Path, corpus: dict[str, bytes]) -> None:
    for name, data in corpus.items():
        (tmp_path / name).write_bytes(data)
        assert outcome(tmp_path / name)[0] == "read", name


@needs_linux
@pytest.mark.parametrize("part", range(4))
def test_mutants_are_read_or_refused(tmp_path: Path, corpus: dict[str, bytes], part: int) -> None:
    size = FEW // 4
    counts = campaign(corpus, range(part * size, (part + 1) * size), tmp_path)
    assert counts["read"] > 0 < counts["InvalidGraph"]


@needs_linux
@pytest.mark.long
@pytest.mark.data
@pytest.mark.timeout(7200)
def test_ten_thousand_mutants_of_real_files(tmp_path: Path, data_dir: Path) -> None:
    first, last = map(int, os.environ.get("APSP_MUTANTS", f"0:{MANY}").split(":"))
    counts = campaign(made() | real(data_dir), range(first, last), tmp_path)
    print(f"of {last - first:,} mutants: {dict(counts)}")
    assert sum(counts.values()) == last - first
