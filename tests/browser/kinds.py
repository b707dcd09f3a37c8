"""One page of every kind, on a real service: each kind of result and each way in which a job can end.

The pictures of the page and the test of axe-core go through the same list, so that neither misses a kind.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.browser.conftest import Site
from tests.docs.pages import blocks_of

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = (
    ("Adenylate kinase", "adenylate_kinase.csv"), ("Minnesota", "minnesota_km.mtx"), ("Helsinki", "helsinki_drive.csv"),
)  # fmt: skip
#: a job of this kind runs long enough to be looked at
SLOW: Final = {"algorithm": "blocked-floyd-warshall", "dtype": "float64", "threads": 1, "fresh": True}
#: pages that show what only a script fetches, and by which words one sees that it has come
ARRIVES: Final = {
    "job": (".route", "#heat-what:has-text('every entry')"),
    "map": ("#map-read:has-text('arcs')",),
    "network": ("#map-read:has-text('arcs')",),
    "prepared": (".route",),
    "sums": (".route",),
    "widest": (".route",),
    "measures": ("#table tbody tr",),
    "near": ("#table tbody tr",),
    "betweenness": ("#table tbody tr",),
    "flows": ("#table tbody tr",),
    "graph": ("#estimate:has-text('predicted')",),
}


def town() -> bytes:
    """Return the town of docs/how-to/map.md, as its code makes it."""
    [made] = [block.body for block in blocks_of(ROOT / "docs" / "how-to" / "map.md") if "random.seed" in block.body]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(made, {})
        return Path("town.graphml").read_bytes()


def ring(n: int) -> bytes:
    """Return a one-way ring as a table."""
    return "\n".join(f"{k} {(k + 1) % n} {k % 7 + 1}" for k in range(n)).encode()


def solved(site: Site, graph: str, **options: Any) -> str:
    """Solve, and return the id of the job."""
    job = site.wait(site.submit(graph, **options)["id"])
    assert job["state"] == "successful", job
    return job["id"]


def fill(site: Site) -> dict[str, str]:
    """Solve the example graphs; returns the address of each page that shows something that has ended well."""
    graphs = {}
    for name, file in EXAMPLES:
        content = (ROOT / "examples" / file).read_bytes()
        graphs[name] = site.upload(content, name=name, filename=file)["id"]
        matrix = solved(site, graphs[name], fresh=True)
    protein = solved(site, graphs["Adenylate kinase"], fresh=True)
    helsinki = graphs["Helsinki"]
    placed = site.upload(town(), name="The town", filename="town.graphml", unit="m")["id"]
    skims = b"from,to,minutes,metres,toll\na,b,3,800,0\nb,c,4,1200,2.5\na,c,9,900,0\nc,d,2,300,1\nd,a,6,1500,0\n"
    summed = site.upload(skims, name="Tolls", weight="minutes", also="metres,toll")["id"]
    cycle = site.upload(b"from,to,km\n1,2,3\n2,1,-9\n", name="Negative cycle", directed=True)["id"]
    demands = {"origins": [0, 5, 17], "destinations": [200, 300, 250], "flows": [120, 4.5, 60]}
    jobs = {
        "job": matrix, "map": solved(site, placed), "network": protein,
        "prepared": solved(site, placed, result="prepared"),
        "sums": solved(site, summed, also=["metres", "toll"]),
        "widest": solved(site, helsinki, semiring="min-max"),
        "measures": solved(site, helsinki, result="measures", within=[500, 1000], quantiles=[0.5]),
        "near": solved(site, helsinki, result="near", nearest=3),
        "betweenness": solved(site, helsinki, result="betweenness", of="arcs"),
        "flows": solved(site, placed, result="flows", demands=demands),
    }  # fmt: skip
    pages = {
        "home": "/", "jobs": "/jobs?q=hel", "no-jobs": "/jobs?q=nowhere", "graphs": "/graphs",
        "graph": f"/graphs/{helsinki}?plan=1", "graph-options": f"/graphs/{helsinki}?plan=1&result=measures&within=500",
        "graph-refused": f"/graphs/{helsinki}?plan=1&memory=1M", "graph-wrong": f"/graphs/{helsinki}?plan=1&cutoff=far",
        "graph-cycle": f"/graphs/{cycle}?plan=1", "api": "/docs", "nothing": "/nothing", "login": "/login",
    }  # fmt: skip
    return pages | {name: f"/jobs/{job}" for name, job in jobs.items()}


def fail(site: Site) -> dict[str, str]:
    """Leave jobs that were cancelled, failed, wait and run; returns the addresses of their pages."""
    graph = site.upload(ring(9000), directed=True, name="Slow")["id"]
    table = site.http.post("/v1/tables", content=b"vertex,beds\n0,3\n17,5\n").json()["id"]
    dismissed = site.submit(graph, **SLOW)["id"]
    slow = {"algorithm": "repeated-squaring"}  # too long for the runner of short jobs, so it waits, and loses its table
    failed = site.submit(graph, result="measures", opportunities=table, within=[10], **slow)["id"]
    assert site.http.delete(f"/v1/tables/{table}").status_code == 204
    site.http.post(f"/v1/jobs/{dismissed}/cancel")
    site.wait(dismissed)
    assert site.wait(failed)["state"] == "failed"
    deleted = solved(site, site.upload(b"1 2 3\n", name="short")["id"], fresh=True)
    assert site.http.delete(f"/v1/jobs/{deleted}").status_code == 204
    running = site.submit(graph, **SLOW)["id"]
    waiting = [site.submit(graph, **SLOW)["id"] for _ in range(3)][-1]
    found = {"dismissed": dismissed, "failed": failed, "running": running, "waiting": waiting, "deleted": deleted}
    return {name: f"/jobs/{job}" for name, job in found.items()} | {"queue": "/jobs?state=accepted"}
