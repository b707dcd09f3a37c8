"""Tables of demands: columns, and mistakes with the line that holds them."""

from __future__ import annotations

import numpy as np
import polars
import pytest

from storage.errors import ApspError, InvalidRequest, NotFound
from storage.graph.demand_table import read_demands

NAMES = np.array(["a", "b", "c"], np.dtypes.StringDType())


def test_columns_are_taken_in_order_or_by_name(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("from,to,cars,bikes\na,b,1.5,9\nc,a,2,8\na,b,3,7\n")
    found = read_demands(path, NAMES)
    assert (found.origins.tolist(), found.destinations.tolist()) == ([0, 2, 0], [1, 0, 1])
    assert found.flows.tolist() == [1.5, 2, 3]
    assert len(found) == 3
    assert read_demands(path, NAMES, "bikes").flows.tolist() == [9, 8, 7]
    polars.read_csv(path).write_parquet(tmp_path / "trips.parquet")
    assert read_demands(tmp_path / "trips.parquet", NAMES).flows.tolist() == [1.5, 2, 3]
    path.write_text('from,to,cars\n"a "," a",1\na ,"b ",2\n')
    found = read_demands(path, np.array([" a", "a", "a ", "b"], np.dtypes.StringDType()))
    assert (found.origins.tolist(), found.destinations.tolist()) == (
        [2, 2],
        [0, 3],
    )  # each name has its own white space
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("o,d,flow\n10,30,1\n")
    assert read_demands(numbers, np.array([10, 20, 30])).destinations.tolist() == [2]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("o,d,x\na,q,1\n", NotFound, "line 2: .*q"),
        ("o,d,x\na,b,1\na,b,-2\n", InvalidRequest, "line 3: the flow is -2"),
        ("o,d,x\na,b,1\n\n,,\na,b,-2\n", InvalidRequest, "line 5: the flow is -2"),
        ("o,d,x\na,b,\n", InvalidRequest, "line 2: column 'x' is None"),
        ("o,d,x\na,b,many\n", InvalidRequest, "line 2: column 'x' is 'many'"),
        ("o,d,x\na,b,inf\n", InvalidRequest, "no finite number"),
        (
            "o,d,x\na,b,0\na,c,1e-400\n",
            InvalidRequest,
            "line 3: column 'x' is '1e-400', which is so small that float64",
        ),
        ('o,d,"x",x\na,b,1,2\n', InvalidRequest, "line 1: two columns are called 'x'; rename one"),
        ("o,d\na,b\n", InvalidRequest, "need an origin, a destination and a flow"),
        ("o,d,x\n", InvalidRequest, "no row with an entry"),
        ("o,d,x\n,,\n  ,,\n\n", InvalidRequest, "no row with an entry"),
        ("a,b,3\nb,c,4\n", InvalidRequest, "line 1: 'a' is a vertex and '3' a number"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path, text, kind, message):
    path = tmp_path / "trips.csv"
    path.write_text(text)
    with pytest.raises(kind, match=message):
        read_demands(path, NAMES)


def test_a_column_or_a_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("o,d,x\na,b,1\n")
    with pytest.raises(NotFound, match="no column 'y' after the second; there are x"):
        read_demands(path, NAMES, "y")
    with pytest.raises(NotFound, match="cannot open"):
        read_demands(tmp_path / "none.csv", NAMES)
    with pytest.raises(ApspError, match="must end in"):
        read_demands(tmp_path / "trips.txt", NAMES)
