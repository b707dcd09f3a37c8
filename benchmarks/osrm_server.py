"""Tables over HTTP beside OSRM's own server, on the same network, over the same protocol.

``python -m benchmarks.osrm_server make FILE FOLDER`` reads a file with coordinates and weights in seconds, rounds the
weights to tenths, and writes ``network.csv`` and ``nodes.csv`` for apsp; ``network.osm`` and ``profile.lua`` for OSRM,
with which every arc takes its weight and turns take nothing; and ``places.csv``, vertices that all reach each other,
because OSRM moves other places.  Then, in that folder, where the package ``osrm-backend`` is installed::

    osrm-extract -p profile.lua network.osm
    osrm-contract network.osrm
    osrm-routed --algorithm ch --max-table-size 20000 --port 5999 network.osrm
    apsp prepare network.csv --nodes nodes.csv --unit s --out network.prepared
    apsp serve-routes network.prepared --port 5998 --max-table 200000000

``python -m benchmarks.osrm_server compare FOLDER OURS THEIRS [COUNT...]`` asks both servers, by turns, for the
durations between COUNT places, and compares every entry.
"""

from __future__ import annotations

import csv
import json
import random
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from storage.readers import read_graph

COUNTS: Final = (1, 10, 100, 1000, 3000, 10_000)
#: Requests of each size to each server; the median counts.
TIMES: Final = 3
#: Seconds: both servers answer in tenths, and OSRM keeps tenths for each arc.
ROUNDING: Final = 0.051
PROFILE: Final = """api_version = 4
function setup()
  return {properties = {weight_name = 'duration', weight_precision = 1, max_speed_for_map_matching = 50,
                        u_turn_penalty = 0, continue_straight_at_waypoint = false, use_turn_restrictions = false}}
end
function process_way(profile, way, result)
  result.duration = tonumber(way:get_value_by_key('seconds'))
  result.weight = result.duration
  result.forward_mode = mode.driving
  result.backward_mode = way:get_value_by_key('oneway') == 'yes' and mode.inaccessible or mode.driving
end
function process_node(profile, node, result) end
function process_turn(profile, turn) turn.duration = 0; turn.weight = 0 end
return {setup = setup, process_way = process_way, process_node = process_node, process_turn = process_turn}
"""


def make(file: Path, folder: Path) -> None:
    """Write a network for both programs, and places for ``compare``.

    Args:
        file: a directed graph with longitudes, latitudes and seconds, such as an extract of OpenStreetMap.
        folder: a folder that exists.
    """
    graph, _ = read_graph(file, mode="driving" if file.suffix == ".pbf" else None)
    assert graph.coordinates is not None, f"{file} has no coordinates"
    x, y = graph.coordinates.x, graph.coordinates.y
    tails = np.repeat(np.arange(graph.n), np.diff(graph.indptr)).tolist()
    weights: Any = graph.weights
    tenths = np.maximum(1, np.round(weights * 10)).astype(np.int64).tolist()
    arcs = dict(zip(zip(tails, graph.heads.tolist(), strict=True), tenths, strict=True))
    with (folder / "network.csv").open("w") as out:
        out.write("source,target,seconds\n")
        out.writelines(f"{tail + 1},{head + 1},{weight / 10}\n" for (tail, head), weight in arcs.items())
    with (folder / "nodes.csv").open("w") as out:
        out.write("id,lon,lat\n")
        out.writelines(f"{v + 1},{x[v]:.6f},{y[v]:.6f}\n" for v in range(graph.n))
    with (folder / "network.osm").open("w") as out:
        out.write('<?xml version="1.0"?>\n<osm version="0.6">\n')
        for v in range(graph.n):
            out.write(f'<node id="{v + 1}" version="1" lat="{y[v]:.6f}" lon="{x[v]:.6f}"/>\n')
        for k, ((tail, head), weight) in enumerate(arcs.items()):
            both = arcs.get((head, tail)) == weight
            if not both or tail < head:
                oneway = "" if both else '<tag k="oneway" v="yes"/>'
                ends = f'<nd ref="{tail + 1}"/><nd ref="{head + 1}"/><tag k="highway" v="road"/>'
                out.write(f'<way id="{k + 1}" version="1">{ends}<tag k="seconds" v="{weight / 10}"/>{oneway}</way>\n')
        out.write("</osm>\n")
    (folder / "profile.lua").write_text(PROFILE)
    matrix = csr_matrix((np.ones(graph.heads.size), graph.heads, graph.indptr), (graph.n, graph.n))
    _, component = connected_components(matrix, connection="strong")
    there = np.flatnonzero(component == np.bincount(component).argmax())
    with (folder / "places.csv").open("w") as out:
        out.writelines(f"{x[v]:.6f},{y[v]:.6f}\n" for v in there)
    print(f"{graph.n:,} vertices, {len(arcs):,} arcs; {len(there):,} places reach each other")


def _table(server: str, places: list[str]) -> tuple[float, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Return the seconds until the whole answer was there, and the durations in it."""
    address = f"{server}/table/v1/car/{';'.join(places)}?annotations=duration&skip_waypoints=true"
    began = time.perf_counter()
    with urllib.request.urlopen(address, timeout=600) as answer:
        body = answer.read()
    return time.perf_counter() - began, np.array(json.loads(body)["durations"], np.float64)


def compare(folder: Path, servers: dict[str, str], counts: list[int]) -> None:
    """Print a table of the seconds that both servers take; a line for each number of places.

    Args:
        folder: what ``make`` has written.
        servers: the address of each server by its name.
        counts: numbers of places; 1 is one place as the source and another as the target.
    """
    with (folder / "places.csv").open() as file:
        every = [",".join(row) for row in csv.reader(file)]
    print(f"{'places':>8} {' '.join(f'{name:>12}' for name in servers)}  entries that differ")
    for count in counts:
        places = random.Random(count).sample(every, max(2, count))
        seconds: dict[str, list[float]] = {name: [] for name in servers}
        differ = 0
        for _ in range(TIMES):
            tables = []
            for name, server in servers.items():
                took, table = _table(server, places)
                seconds[name].append(took)
                tables.append(table)
            same = np.isclose(tables[0], tables[1], rtol=0, atol=ROUNDING, equal_nan=True)  # NaN: no way
            differ = int((~same).sum())
        told = " ".join(f"{statistics.median(found):>10.4f} s" for found in seconds.values())
        print(f"{count:>8,} {told}  {differ:,} of {tables[0].size:,}", flush=True)


def main() -> None:
    """Run what the command line names."""
    action, *words = sys.argv[1:]
    if action == "make":
        make(*map(Path, words))
    else:
        compare(Path(words[0]), {"apsp": words[1], "OSRM": words[2]}, [int(word) for word in words[3:]] or list(COUNTS))


if __name__ == "__main__":
    main()
