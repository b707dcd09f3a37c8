"""Tests that Zarr clients (xarray, zarr-python, zarrita, curl) read results with a key over a real connection."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from zarr.storage import FsspecStore

from tests.integration.keyed_service import KeyedService, Solved, solve_line
from tests.programs import need

pytestmark = pytest.mark.beside

PAGE = "https://maps.example"
ZARRITA = Path(__file__).parent / "zarrita"
TILE = "distances/c/0/1"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("zarr") / "data", APSP_CORS_ORIGINS=PAGE) as service:
        yield service


@pytest.fixture(scope="module")
def solved(live: KeyedService) -> Solved:
    return solve_line(live)


def tile_of(live: KeyedService, solved: Solved) -> bytes:
    return (live.data / "jobs" / solved.job / "matrix.zarr" / TILE).read_bytes()


def open_xarray(live: KeyedService, path: str) -> xarray.Dataset:
    return xarray.open_zarr(live.url + path, storage_options={"headers": {"Authorization": live.bearer}})


def open_python(live: KeyedService, path: str) -> zarr.Array[Any]:
    options = {"headers": {"Authorization": live.bearer}}
    store = FsspecStore.from_url(live.url + path, storage_options=options, read_only=True)
    found = zarr.open_group(store, mode="r")["distances"]
    assert isinstance(found, zarr.Array)
    return found


READERS = [lambda live, path: open_xarray(live, path).distances.values, lambda live, path: open_python(live, path)[:]]


def test_xarray_reads_by_label(live: KeyedService, solved: Solved):
    with open_xarray(live, solved.zarr) as store:
        assert store.distances.dims == ("source", "target")
        assert np.array_equal(store.distances.values, solved.distances)
        some = store.distances.sel(source=[3, 19_999], target=[17, 19_999]).values
    first, last = solved.distances[53], solved.distances[49]
    assert np.array_equal(some, [[first[17], first[19_999]], [last[17], last[19_999]]])


def test_zarr_python_reads_whole_and_in_part(live: KeyedService, solved: Solved):
    array = open_python(live, solved.zarr)
    assert np.array_equal(array[:], solved.distances)
    assert np.array_equal(array[60:70, 8100:8300], solved.distances[60:70, 8100:8300])


def test_without_the_key_nothing_opens(live: KeyedService, solved: Solved):
    with pytest.raises(Exception, match="401"):
        xarray.open_zarr(live.url + solved.zarr)


# curl


def curl(live: KeyedService, path: str, *arguments: str) -> tuple[int, dict[str, str], bytes]:
    need("curl")
    command = ["curl", "-s", "-i", "-H", f"Authorization: {live.bearer}", *arguments, live.url + path]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    head, _, body = output.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), headers, body


def test_curl_reads_ranges(live: KeyedService, solved: Solved):
    whole, path = tile_of(live, solved), f"{solved.zarr}/{TILE}"
    size = len(whole)
    assert size > 1_700_000
    for asked, first, last in (("0-99", 0, 99), ("1000000-", 1_000_000, size - 1), ("-4", size - 4, size - 1)):
        status, headers, body = curl(live, path, "-r", asked)
        assert (status, headers["content-range"]) == (206, f"bytes {first}-{last}/{size}")
        assert body == whole[first : last + 1]
    status, headers, body = curl(live, path, "-r", "0-7,-8")
    assert status == 206
    assert headers["content-type"].startswith("multipart/byteranges; boundary=")
    assert whole[:8] in body
    assert whole[-8:] in body
    assert len(body) == int(headers["content-length"])
    assert curl(live, path)[2] == whole


def test_curl_asks_conditionally(live: KeyedService, solved: Solved):
    whole, path = tile_of(live, solved), f"{solved.zarr}/{TILE}"
    status, headers, body = curl(live, path, "-I")
    assert (status, body, int(headers["content-length"])) == (200, b"", len(whole))
    assert (headers["accept-ranges"], "immutable" in headers["cache-control"]) == ("bytes", True)
    tag, date = headers["etag"], headers["last-modified"]
    status, headers, body = curl(live, path, "-H", f"If-None-Match: {tag}")
    assert (status, body, headers["etag"]) == (304, b"", tag)
    for condition, expected in ((tag, 206), (date, 206), ('"other"', 200), ("Thu, 01 Jan 1970 00:00:00 GMT", 200)):
        assert curl(live, path, "-r", "0-3", "-H", f"If-Range: {condition}")[0] == expected, condition
    status, headers, _ = curl(live, path, "-r", f"{len(whole)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(whole)}")
    status, headers, _ = curl(live, path, "-I", "-r", "-4")
    assert (status, headers["content-length"]) == (206, "4")


def test_an_interrupted_download_goes_on(live: KeyedService, solved: Solved, tmp_path: Path):
    whole, part = tile_of(live, solved), tmp_path / "tile"
    part.write_bytes(whole[:1_000_001])
    need("curl")
    command = ["curl", "-sS", "-f", "-C", "-", "-H", f"Authorization: {live.bearer}", "-o", str(part)]
    subprocess.run([*command, f"{live.url}{solved.zarr}/{TILE}"], check=True, timeout=60)
    assert part.read_bytes() == whole


# zarrita


@functools.cache
def node() -> str | None:
    """Why zarrita cannot run here; None if it can."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed (Debian: apt-get install nodejs npm)"
    if not (ZARRITA / "node_modules" / "zarrita").is_dir():
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
        done = subprocess.run(command, cwd=ZARRITA, capture_output=True, text=True, check=False, timeout=300)
        return f"npm ci failed: {done.stderr[-500:]}" if done.returncode else None
    return None


def read_with_zarrita(live: KeyedService, path: str, out: Path) -> dict[str, Any]:
    if (missing := node()) is not None:
        if os.environ.get("APSP_REQUIRE_NODE") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    command = ["node", "read.mjs", live.url + path, live.key, TILE, str(out)]
    done = subprocess.run(command, cwd=ZARRITA, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_zarrita_reads_and_a_page_may_do_what_it_does(live: KeyedService, solved: Solved, tmp_path: Path):
    found = read_with_zarrita(live, solved.zarr, tmp_path / "out")
    assert "error" not in found, found
    assert (found["shape"], found["dtype"]) == (list(solved.distances.shape), "int32")
    assert (tmp_path / "out").read_bytes() == solved.distances.tobytes()
    assert found["labels"] == list(range(20_000))
    whole = tile_of(live, solved)
    assert bytes(found["asked"]) == bytes(found["suffix"]) == whole[-4:]
    assert bytes(found["range"]) == whole[8:24]
    assert {request["method"] for request in found["requests"]} == {"GET", "HEAD"}
    # Everything that it sent passes the preflight, and everything that it looked at may be seen.
    asked = {name for request in found["requests"] for name in request["headers"]}
    assert {"authorization", "range"} <= asked
    for method in ("GET", "HEAD"):
        preflight = {
            "Origin": PAGE, "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": ",".join(sorted(asked)),
        }  # fmt: skip
        answer = live.http.options(f"{solved.zarr}/{TILE}", headers={**preflight, "Authorization": ""})
        assert answer.status_code == 200, answer.text
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert asked <= {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
        assert method in answer.headers["access-control-allow-methods"]
    answer = live.http.get(f"{solved.zarr}/{TILE}", headers={"Origin": PAGE, "Range": "bytes=0-3"})
    assert answer.headers["access-control-allow-origin"] == PAGE
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {*found["looked"], "content-range", "etag"} <= exposed


def test_other_pages_may_not_ask(live: KeyedService, solved: Solved):
    asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "GET"}
    assert live.http.options(f"{solved.zarr}/zarr.json", headers=asked).status_code == 400
    answer = live.http.get(f"{solved.zarr}/zarr.json", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in answer.headers


# What is not there is never a hole


def refused(live: KeyedService, path: str, status: int) -> None:
    """All of the store answers so, and no client takes that for missing data."""
    for key in ("zarr.json", "distances/zarr.json", TILE, "target/c/0", "distances/.zarray"):
        assert live.http.get(f"{path}/{key}").status_code == status, key
    for read in READERS:
        with pytest.raises(Exception, match=str(status)):
            read(live, path)


def test_a_tile_that_should_exist_is_no_404(live: KeyedService):
    solved = solve_line(live, n=300)
    lost = live.data / "jobs" / solved.job / "matrix.zarr" / "distances" / "c" / "1" / "0"
    lost.unlink()
    answer = live.http.get(f"{solved.zarr}/distances/c/1/0")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    for read in READERS:
        with pytest.raises(Exception, match="500"):
            read(live, solved.zarr)
    lost.write_bytes(b"short")
    assert live.http.get(f"{solved.zarr}/distances/c/1/0").status_code == 500
    for absent in ("distances/c/2/0", "distances/c/0/1", "distances/c/0", "distances/.zarray", "c/0/0"):
        assert live.http.get(f"{solved.zarr}/{absent}").status_code == 404


def test_409_until_sealed_and_410_after_deletion(live: KeyedService):
    graph = live.upload(b"1 2 3\n2 3 4\n")
    runner = live.runner()
    os.kill(runner, signal.SIGSTOP)  # the job stays open
    try:
        job = live.submit(graph["id"])["id"]
        path = f"/v1/jobs/{job}/zarr"
        refused(live, path, 409)
        assert live.http.get(f"{path}/zarr.json").headers["retry-after"] == "1"
    finally:
        os.kill(runner, signal.SIGCONT)
    assert live.wait(job)["state"] == "successful"
    with open_xarray(live, path) as store:
        assert live.http.delete(f"/v1/jobs/{job}").status_code == 204
        with pytest.raises(Exception, match="410"):
            store.distances.load()  # opened while it was there
    refused(live, path, 410)


def test_a_stranger_learns_nothing(live: KeyedService, solved: Solved):
    for header in ("", "Bearer apsp_000000000000_nothing"):
        answer = live.http.get(f"{solved.zarr}/zarr.json", headers={"Authorization": header})
        assert answer.status_code == 401
    assert live.http.get("/v1/jobs/nobody/zarr/zarr.json").status_code == 404
