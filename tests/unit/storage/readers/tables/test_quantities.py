"""Further columns of numbers are read in one parse, with the results and refusals of reading each as if it were the
weight.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import storage.readers
from storage.errors import ApspError, InvalidGraph, InvalidRequest, LimitExceeded
from storage.graph.cleaning import quantity_values
from storage.readers import ReadLimits, read_graph
from storage.readers.parsed import FormatReader, Parsed, ReadOptions
from storage.readers.source import Block, Source
from storage.readers.tables import edge_list, parquet
from storage.readers.tables.table import ArcTable, Layout

#: Fields that cannot be read, that only some ways of parsing can read, or that have a meaning of their own.
ODD = [
    *("", "x", "inf", "-inf", "nan", "1e-400", "99999999999999999999", "9007199254740993", "1d5", "-", "NA", "1_0"),
    *("+3", "-0", "007", "1e3", ".5", "6.", "1.500", "1,5", '"5"', "-4", "0", "1e999", "5 km", "0.0", "1.0"),
]
SIGNS = {"comma": ",", "semicolon": ";", "blank": " ", "tab": "\t"}


def read_each(reader: FormatReader, source: Source, options: ReadOptions) -> Parsed:
    """Read the file once more for each further column, as if it were the weight."""
    parsed = reader.read(source, replace(options, also=()))
    arcs = parsed.arcs
    for column in options.also:
        as_weight = replace(options, weight=column, unweighted=False, length_of=None, also=())
        try:
            found = reader.read(Source(source.path, options.limits), as_weight).arcs
        except InvalidGraph as error:
            message = str(error).removeprefix(f"line {error.line}: ")
            raise InvalidGraph(f"--also {column}: {message}", line=error.line, field=error.field) from None
        except LimitExceeded:
            raise
        except InvalidRequest as error:
            raise InvalidRequest(f"--also {column}: {error}", field="also") from None
        same = np.array_equal(found.tails, arcs.tails) and np.array_equal(found.heads, arcs.heads)
        if not same or found.weights is None:
            raise InvalidGraph(f"--also {column}: its rows are not the arcs of the weight", field="also")
        arcs.quantities[column] = quantity_values(column, found.weights)
    parsed.notes = [note.replace("not read: ", "not the weight: ", 1) for note in parsed.notes]
    parsed.notes.append(f"summed along the paths: {', '.join(options.also)}")
    return parsed


def outcome(path: Path, **options: Any) -> dict[str, Any]:
    """Return all parts of the graph and of the receipt, or the refusal."""
    try:
        graph, receipt = read_graph(path, **options)
    except ApspError as error:
        return {"refusal": f"{type(error).__name__}: {error}", **error.details()}
    parts: dict[str, Any] = {"receipt": receipt, "names": list(graph.quantities)}
    for part in fields(graph):
        value = getattr(graph, part.name)
        parts[part.name] = (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value
    parts["quantities"] = {name: (values.dtype, values.tolist()) for name, values in graph.quantities.items()}
    return parts


def both_ways(path: Path, **options: Any) -> dict[str, Any]:
    """Read a file in both ways, compare all parts, and return them."""
    together = outcome(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.readers, "read_with_quantities", read_each)
        alone = outcome(path, **options)
    shown = path.read_text(errors="replace") if path.suffix != ".parquet" else pl.read_parquet(path)
    assert together == alone, f"{options}\n{shown}"
    return together


class Rows:
    """A random table of arcs, and random options to read it with."""

    def __init__(self, seed: int, sign: str) -> None:
        self.random = rng = random.Random(f"{seed} {sign}")
        self.sign = sign
        self.wide = rng.randint(1, 4)
        self.named = rng.random() < 0.6
        self.places = [*range(self.wide + 2)]
        if self.named:
            rng.shuffle(self.places)
        self.names = [["from", "to", "minutes", "metres", "toll", "c d"][i] for i in self.places]
        self.vertices = rng.choice(["numbers", "numbers", "names", "late", "quoted", "signs", "padded", "decimals"])

    def vertex(self, last: bool) -> str:
        rng = self.random
        number = rng.randint(0, 12)
        if self.vertices == "numbers" or (self.vertices == "late" and not last):
            return str(number)
        name = rng.choice([f"v{number}", str(number)])
        odd = {"quoted": f'"{name}"', "signs": f'"#{name}"', "decimals": f"{number}.0"}
        odd["padded"] = f'"{name} "' if last or rng.random() < 0.9 else name
        return odd.get(self.vertices, name)

    def number(self, kind: str, late: bool) -> str:
        rng = self.random
        if kind == "wild" and rng.random() < 0.05:
            return rng.choice(ODD)
        if kind == "whole" or kind == "wild" or (kind == "late" and not late):
            return str(rng.choice([0, 1, 7, 30, 1200, rng.randint(-5, 2**40)]))
        text = f"{rng.choice([0, 1, 12.5, rng.random() * 1000]):{rng.choice(['.3f', '.1f', 'g'])}}"
        return text.replace(".", ",") if kind == "commas" else text

    def lines(self) -> list[str]:
        rng = self.random
        kinds = ["whole", "whole", "fraction", "late", "wild"] + ["commas"] * 3 * (self.sign == ";")
        kind = {i: rng.choice(kinds) for i in range(2, self.wide + 2)}
        count = rng.choice([1, 3, 9, rng.randint(2, 60)])
        pairs = self.pairs(count)
        lines = [self.sign.join(f'"{name}"' if " " in name else name for name in self.names)] * self.named
        odd = rng.randint(0, 3 * len(pairs)) if rng.random() < 0.5 else -1
        for at, (tail, head) in enumerate(pairs):
            row = [tail, head, *(self.number(kind[i], 3 * at > 2 * count) for i in range(2, self.wide + 2))]
            if at == odd:
                row[rng.randint(2, self.wide + 1)] = rng.choice(ODD)
            if rng.random() < 0.005:
                row.append("5")
            gap = rng.choice(["", "", "", " "]) if self.sign in ",;" else ""
            lines.append((self.sign + gap).join(row[i] if i < len(row) else "" for i in self.places[: len(row)]))
            if rng.random() < 0.03:
                lines.append(rng.choice(["", "# a comment", "% 1 2", f"#{lines[-1]}", f"#{lines[-1]}z", "#\udce9"]))
        if rng.random() < 0.1:
            lines.append(self.sign.join(rng.choice([["0"] * (self.wide + 2), ["-1"] * (self.wide + 2)])))
        if rng.random() < 0.1:
            lines.insert(self.named, self.sign.join(["40", "40"] + [rng.choice([str(len(pairs)), "0"])] * self.wide))
        return lines

    def pairs(self, count: int) -> list[tuple[str, str]]:
        if self.random.random() < 0.2:
            three = [("0", "1", "2"), ("a", "b", "c")][self.vertices != "numbers"]
            return [(tail, head) for tail in three for head in three]
        return [tuple(self.vertex(3 * i > 2 * count) for _ in range(2)) for i in range(count)]  # type: ignore[misc]

    def options(self) -> dict[str, Any]:
        rng = self.random
        columns = self.names[:] if self.named else [str(i + 1) for i in range(self.wide + 2)]
        numbers = [columns[self.places.index(i)] for i in range(2, self.wide + 2)]
        if rng.random() < 0.2:
            columns, numbers = ([str(self.places.index(i) + 1) for i in some] for some in (self.places, range(2, 3)))
        some = [name for name in numbers if rng.random() < 0.8] or numbers[:1]
        rng.shuffle(some)
        if rng.random() < 0.1:
            some.append(rng.choice(["nope", *columns]))
        options: dict[str, Any] = {"also": list(dict.fromkeys(some))}
        weight = rng.choice([*numbers, None])
        how = rng.choice(["weight", "weight", "unweighted", "formula", "ends", "directed"])
        if how == "unweighted":
            return options | {"unweighted": True}
        if how == "formula" and weight is not None:
            column = f"${weight}" if weight.isdigit() else f'"{weight}"'
            return options | {"length_of": rng.choice([f"2 * {column} + 1", f"1 / {column}"])}
        if how == "ends":
            options |= {"source": str(self.places.index(0) + 1), "target": str(self.places.index(1) + 1)}
        return options | ({"weight": weight} if weight else {}) | ({"directed": False} if how == "directed" else {})


def make_small(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Make blocks, and the files that are read line by line, small."""
    monkeypatch.setattr("storage.readers.source.BLOCK", rng.choice([60, 200, 600, 1 << 21]))
    monkeypatch.setattr("storage.readers.tables.table.FEW_BYTES", rng.choice([0, 0, 250, 1 << 18]))


@pytest.mark.parametrize("sign", SIGNS)
def test_tables_of_arcs(sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, refused = tmp_path / "g.txt", 0, set()
    for seed in range(400):
        rows = Rows(seed, SIGNS[sign])
        path.write_text("\n".join(rows.lines()) + "\n", errors="surrogateescape")
        make_small(monkeypatch, rows.random)
        found = both_ways(path, format=rows.random.choice(["edges", None]), **rows.options())
        read += "refusal" not in found
        refused |= {found.get("refusal", "")[:24]}
    assert read > 150
    assert len(refused) > 30


PAIRS = [(i, j) for i in "123" for j in "123"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from,to,w,q\n" + "".join(f"{i},{j},5,{(i < j) * 3}\n" for i, j in PAIRS),
            "--also q: the rows list every pair",
        ),
        ("from,to,w,q\n" + "".join(f"a{i},{j},5,{(i < j) * 3}\n" for i, j in PAIRS) + "b,1,1,0\n", None),
        ("from,to,w,q\n1,2,5,3\n0,0,7,0\n", "--also q: the last row holds nothing but 0"),
        ("from,to,w,q\n1,2,5,3\n0,0,0,7\n", "the last row holds nothing but 0"),
        ("from;to;w;q\n1;2;1.25;2.500\n2;3;7;4\n", "line 2: --also q: 2.500 may be 2500 or 2.5"),
        ("from;to;w;q\n1;2;1.25;2,500\n2;3;7;4\n", "line 2: weight '1.25' has a point"),
        ("from;to;w;q\n1;2;1,25;2.5\n2;3;7;4\n", "line 2: --also q: weight '2.5' has a point"),
        ('from,to,w,q\n"#a",b,5,3\n#a,b,x,3\nb,c,5,4\n', "line 3: --also q: '#a,b,x,3' begins like a comment"),
        ('from,to,w,q\n"#a",b,5,3\n#a,b,3,x\nb,c,5,4\n', "line 3: '#a,b,3,x' begins like a comment"),
        ("from,to,w,q\n1,2,5,x\n2,3,x,4\n", "line 3: weight 'x' is not a number"),
        ("from,to,w,q\n1,2,5,inf\n2,3,3,4\n", "quantity 'q': inf of arc 1 cannot be summed"),
        ("from,to,w,q\n1,2,5,1d3\n2,3,3,4\n", None),
        ("from,to,w,q\n1,2,5,-0\n2,3,3,-0.0\n", None),
        ("from,to,w,q\n1,2,5,3\n2,3,3,1e-400\n", "line 3: --also q: weight '1e-400' is so small"),
        ("from,to,w,q\n1,2,5,9007199254740993\n", "line 2: --also q: weight 9007199254740993 is beyond 2^53"),
        ("from,to,w,q\n1,2,5,3\n2,3,3,\n", "line 3: --also q: the weight is missing"),
    ],
)
@pytest.mark.parametrize("few", [0, 1 << 18])
def test_what_is_wrong_with_one_column(
    text: str, expected: str | None, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.readers.tables.table.FEW_BYTES", few)
    path = tmp_path / "g.csv"
    path.write_text(text)
    found = both_ways(path, weight="w", also=["q"])
    assert found.get("refusal", ": ").partition(": ")[2].startswith(expected or "")
    assert ("refusal" in found) == (expected is not None)


@pytest.mark.parametrize("size", [False, True])
def test_a_row_that_counts_the_arcs_with_one_column_only(size: bool, tmp_path: Path) -> None:
    rows = [f"{i} {i % 40 + 1} 7 3" for i in range(1, 41)]
    path = tmp_path / "g.txt"
    path.write_text("\n".join([f"50 50 7 {40 if size else 41}", *rows]) + "\n")
    found = both_ways(path, weight="3", also=["4"])
    assert ("refusal" in found) == size


def tables_of(seed: int) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return a random data frame of arcs, and random options to read it with."""
    rng = random.Random(seed)
    rows = rng.choice([1, 9, 20])
    ends = [rng.choices(range(9), k=rows) for _ in range(2)]
    if rng.random() < 0.3:
        ends[rng.randint(0, 1)] = [rng.choice("abc") for _ in range(rows)]
    kinds: dict[str, list[Any]] = {
        "whole": [rng.randint(-3, 2**40) for _ in range(rows)],
        "fraction": [rng.random() for _ in range(rows)],
        "gaps": [rng.choice([5, 6, 7, 8, None]) for _ in range(rows)],
        "odd": [rng.choice([1.5, 2.5, 3.5, rng.choice([np.nan, np.inf, -np.inf])]) for _ in range(rows)],
        "large": [rng.choice([1, 2, 3, 2**53 + 1, 2**63]) for _ in range(rows)],
        "text": [rng.choice("12") for _ in range(rows)],
    }
    columns = {name: kinds[rng.choice([*kinds, "whole", "fraction"])] for name in ("minutes", "metres", "toll")}
    frame = pl.DataFrame({"from": ends[0], "to": ends[1], **columns}, strict=False)
    if rng.random() < 0.2:
        frame = frame.with_columns(pl.lit("undirected").alias("Type"))
    also = rng.sample(["minutes", "metres", "toll", "3", "5"], rng.randint(1, 3))
    options: dict[str, Any] = {"also": also + ["nope"] * (rng.random() < 0.05) + ["to"] * (rng.random() < 0.05)}
    how: dict[str, Any] = rng.choice([{"weight": "minutes"}, {"unweighted": True}, {}, {"length_of": "2 * metres"}])
    return frame, options | how


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, refused = tmp_path / "g.parquet", 0, set()
    monkeypatch.setattr(parquet, "_ROWS", 7)
    for seed in range(300):
        frame, options = tables_of(seed)
        frame.write_parquet(path)
        found = both_ways(path, **options)
        read += "refusal" not in found
        refused |= {found.get("refusal", "")[:24]}
    assert read > 60
    assert len(refused) > 15


def test_networks_of_tntp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "g_net.tntp", 0
    for seed in range(200):
        rng = random.Random(seed)
        make_small(monkeypatch, rng)
        links = [
            [str(rng.randint(1, 9)), str(rng.randint(1, 9)), "9", *(f"{rng.choice([1, 2.5, 4])}" for _ in range(3))]
            for _ in range(rng.choice([1, 30]))
        ]
        if rng.random() < 0.5:
            rng.choice(links)[rng.randint(3, 5)] = rng.choice(ODD) or "0"
        gap = rng.choice(["\t", " "])
        top = f"<NUMBER OF NODES> 9\n<NUMBER OF LINKS> {len(links)}\n<END OF METADATA>\n"
        path.write_text(
            top
            + gap.join(["~", "init_node", "term_node", "capacity", "length", "toll", "speed", ";"])
            + "".join(f"\n{gap}{gap.join(link)}{gap};" for link in links)
        )
        how: dict[str, Any] = rng.choice([{}, {"weight": "speed"}, {"unweighted": True}, {"length_of": "1 / length"}])
        also = rng.sample(["toll", "speed", "length", "5"], rng.randint(1, 3)) + ["nope"] * (rng.random() < 0.1)
        read += "refusal" not in both_ways(path, also=also, **how)
    assert 60 < read < 160


TABLE = "from,to,minutes,metres,toll\n" + "".join(f"{i},{i + 1},4,3{i}.5,{i}\n" for i in range(50))


@pytest.mark.parametrize(
    ("also", "options"),
    [
        (["metres", "toll"], {"weight": "minutes"}),
        (["minutes", "5"], {"weight": "metres"}),
        (["metres", "toll"], {"unweighted": True}),
        (["metres", "minutes"], {"length_of": "2 * minutes"}),
        (["metres", "toll"], {"weight": "minutes", "source": "from"}),
    ],
)
@pytest.mark.parametrize("form", ["csv", "parquet", "names"])
@pytest.mark.parametrize("few", [0, 1 << 18])
def test_one_reading_is_enough(
    also: list[str], options: dict[str, Any], form: str, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.readers.tables.table.FEW_BYTES", few)
    path, module = tmp_path / "g.csv", edge_list
    path.write_text(TABLE + "x,y,1,2,3\n" * (form == "names"))
    if form == "parquet":
        module, path = parquet, tmp_path / "g.parquet"
        pl.read_csv(tmp_path / "g.csv").write_parquet(path)
    calls: list[ReadOptions] = []
    read = module.read
    monkeypatch.setattr(module, "read", lambda source, options: calls.append(options) or read(source, options))
    found = both_ways(path, also=also, **options)
    assert "refusal" not in found
    assert [len(options.also) for options in calls] == [len(also), 0, *(0 for _ in also)]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_that_is_an_end_as_long_as_it_is_no_weight(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"g.{ending}"
    table = pl.DataFrame({"red": [1, 2, 3], "green": [2, 3, 4], "blue": [7, 8, 9], "length": [2, 2, 2]})
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    found = both_ways(path, weight="blue", also=["red"])
    assert found["refusal"] == "InvalidGraph: --also red: its rows are not the arcs of the weight"


def test_columns_are_parsed_at_once_and_whole_numbers_stay_narrow(tmp_path: Path) -> None:
    layout = Layout(6, weight=4, separator=",", quantities={"whole": 2, "fraction": 3, "late": 5, "again": 3})
    first = "".join(f"{i},{i + 1},{i},{i}.5,{i}.25,7\n" for i in range(9)).encode()
    second = first.replace(b",7\n", b",7.5\n")
    table = ArcTable(layout, ReadLimits())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_parse_lines", lambda block: pytest.fail("read line by line"))
        for block in (first, b"# nothing\n", first, second, first):
            table.feed(Block(block, 1))
    arcs = table.columns.take()
    assert {name: values.dtype.name for name, values in arcs.quantities.items()} == {
        "whole": "int32", "fraction": "float64", "late": "float64", "again": "float64",
    }  # fmt: skip
    assert arcs.quantities["late"].tolist() == [7] * 18 + [7.5] * 9 + [7] * 9
    assert arcs.quantities["again"].tolist() == arcs.quantities["fraction"].tolist() == [i + 0.5 for i in range(9)] * 4
