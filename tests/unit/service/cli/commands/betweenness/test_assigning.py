"""``apsp assign``: flows, what is lost, refusals."""

from __future__ import annotations

import json

import pytest

from service.cli import main


@pytest.fixture
def files(tmp_path):
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,1\nb,d,1\na,c,1\nc,d,1\nd,e,2\n")
    (tmp_path / "trips.csv").write_text("o,d,cars,bikes\na,e,10,1\ne,a,3,0\nb,b,4,0\nc,e,2.5,0\n")
    return ["assign", str(tmp_path / "roads.csv"), "--directed", "--demands", str(tmp_path / "trips.csv")]


def said(capsys, *words):
    """What a command that succeeds prints on standard output and on standard error."""
    assert main.run([str(word) for word in words]) == 0
    return capsys.readouterr()


def test_flows_are_printed_and_what_is_lost_is_told(files, capsys):
    told = said(capsys, *files)
    assert told.out == "source,target,weight,flow\na,b,1,5.0\na,c,1,5.0\nb,d,1,5.0\nc,d,1,7.5\nd,e,2,12.5\n"
    assert "assigned 12.5 of 19.5, flow times length 47.5" in told.err
    assert "4 goes from vertices to themselves" in told.err
    assert "warning: 3 is not assigned, as there is no path: e to a" in told.err
    told = said(capsys, *files, "--flow", "bikes", "--of", "vertices")
    assert told.out == "vertex,begins,ends,through\na,1.0,0.0,0.0\nb,0.0,0.0,0.5\nc,0.0,0.0,0.5\nd,0.0,0.0,1.0\n" \
        "e,0.0,1.0,0.0\n"  # fmt: skip
    assert "warning" not in told.err


def test_tables_are_written_and_sums_are_in_json(files, tmp_path, capsys):
    out, lost = tmp_path / "flows.csv", tmp_path / "lost.csv"
    told = json.loads(said(capsys, *files, "-o", out, "--unreachable", lost, "--json").out)
    assert told["table"] == str(out)
    sums = {name: told[name] for name in ("demands", "assigned", "inside", "lost", "cost")}
    assert sums == {"demands": 4, "assigned": 12.5, "inside": 4.0, "lost": 3.0, "cost": 47.5}
    assert told["unreachable"] == [{"source": "e", "target": "a", "flow": 3.0}]
    assert lost.read_text() == "source,target,flow\ne,a,3.0\n"
    assert out.read_text().startswith("source,target,weight,flow\na,b,1,5.0\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--flow", "trams"], 2, "no column 'trams'"),
        (["-o", "{new}.txt"], 2, "must end in"),
        (["--unreachable", "{new}.txt"], 2, "must end in"),
        (["-o", "{new}.csv", "--unreachable", "{new}.csv"], 2, "both name"),
        (["--demands", "{new}.csv"], 2, "cannot open"),
        (["--memory", "1M"], 3, "may be used"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_written(files, tmp_path, capsys, words, code, message):
    before = sorted(tmp_path.iterdir())
    assert main.run([*files, *(word.format(new=tmp_path / "new") for word in words)]) == code
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
