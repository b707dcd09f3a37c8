"""How each graph of REFERENCE.json is asked for on the command line, for all tests that go through the real graphs."""

from __future__ import annotations

import csv
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

#: Options by the name in REFERENCE.json.  Bare edge lists are directed unless told otherwise.
OPTIONS: dict[str, list[str]] = {
    "3elt.mtx": ["--undirected"],
    "4elt.graph": [],
    # the reference lets paths pass through zone centroids
    "Anaheim_net.tntp": ["--centroids-through"],
    "Anaheim_net.tntp#free_flow_time": ["--weight", "free_flow_time", "--centroids-through"],
    "ChicagoRegional_net.tntp.gz": ["--centroids-through"],
    "ChicagoSketch_net.tntp": [],
    "ChicagoSketch_net.tntp#free_flow_time": ["--weight", "free_flow_time"],
    "EVA.mtx": [],
    "NY.gr.gz": [],
    "PGPgiantcompo.graph": [],
    "Ragusa16.mtx": [],
    "SiouxFalls_net.tntp": [],
    "Sydney_net.tntp.gz": ["--centroids-through"],
    "Winnipeg_net.tntp": ["--centroids-through"],
    "airfoil1.graph": [],
    "as-caida20070917.txt": ["--unweighted"],  # the third column is the kind of a relation
    "bays29.tsp": [],
    "bio-CE-GT.txt": ["--undirected"],
    "bremen_dist.gr.gz": [],
    "bremen_time.gr.gz": [],
    "brg180.tsp": [],
    "cal.cedge.gz": ["--undirected"],
    "celegans_metabolic.graph": [],
    "celegansneural.gml": ["--weight", "value"],
    "chesapeake.mtx": [],
    "delaunay_n16.mtx.gz": ["--undirected"],
    "delhi-roads.gr.gz": [],
    "ecb_2024-06-28_rounded.csv": [],
    "ecb_2024-06-28_spread.csv": [],
    "email-Eu-core.txt": [],
    "facebook_combined.txt.gz": ["--undirected"],
    "graph_23rd.gr": [],
    "helsinki_drive.csv": [],
    "krems_drive.csv": [],
    "lesmis.graph": [],
    "mediumEWD.txt": [],
    "minnesota_km.mtx": [],
    "monaco_drive.csv": [],
    "munich_net.tntp": [],
    "netscience.mtx": [],
    "north-bayreuth_drive.csv": [],
    "openflights_km.csv.gz": [],
    "p2p-Gnutella08.txt": [],
    "p2p-Gnutella31.txt.gz": [],
    "polbooks.mtx": [],
    "power.graph": [],
    "pushpull.mtx.gz": [],
    "rates.txt": [],
    "rome99.gr": [],
    "seattle-roads.gr.gz": [],
    "si535.tsp.gz": [],
    "soc-sign-bitcoinotc.csv.gz": [],
    "sx-askubuntu.txt.gz": [],
    "test_FW_1000.mtx": [],
    "test_FW_2003.mtx": [],
    "tinyEWD.txt": [],
    "tinyEWDn.txt": [],
    "tinyEWDnc.txt": [],
    "ubo100_psp22.sch": [],
    "ubo200_psp61.sch": [],
    "ubo500_psp3.sch": [],
    "wiki-Vote.txt.gz": [],
}


@cache
def references(data_dir: Path) -> dict[str, dict[str, Any]]:
    """The facts of every graph, by name."""
    graphs: dict[str, dict[str, Any]] = json.loads((data_dir / "REFERENCE.json").read_text())["graphs"]
    return graphs


def cli_options(name: str) -> list[str]:
    """Options of ``apsp solve`` and ``apsp inspect`` for a graph of REFERENCE.json."""
    return list(OPTIONS[name])


def read_arguments(name: str) -> dict[str, Any]:
    """The same as keyword arguments of ``read_graph``."""
    options = cli_options(name)
    arguments: dict[str, Any] = {}
    if "--undirected" in options:
        arguments["directed"] = False
    if "--unweighted" in options:
        arguments["unweighted"] = True
    if "--centroids-through" in options:
        arguments["centroids_through"] = True
    if "--weight" in options:
        arguments["weight"] = options[options.index("--weight") + 1]
    return arguments


def graph_file(name: str, data_dir: Path, scratch: Path) -> Path:
    """The file to read for a graph of REFERENCE.json; what is no graph file is converted into ``scratch``."""
    path = data_dir / name.partition("#")[0]
    return _rates_as_edges(path, scratch / "rates.csv") if name == "rates.txt" else path


def _rates_as_edges(table: Path, out: Path) -> Path:
    """A table of exchange rates ``NAME rate rate ...`` as arcs of weight -ln(rate)."""
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    names = [row[0] for row in rows]
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["from", "to", "weight"])
        for row in rows:
            for name, rate in zip(names, row[1:], strict=True):
                if name != row[0]:
                    writer.writerow([row[0], name, repr(-math.log(float(rate)))])
    return out
