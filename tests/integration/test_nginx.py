"""Tests the configuration in deploy/ with Debian's nginx in front of a real service."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx2 as httpx
import numpy as np
import pytest
import xarray

from service.auth.keys import REMEMBERED_SECONDS
from storage.jobs.keys import KeyStore
from storage.jobs.store import JobStore
from tests.integration.keyed_service import KeyedService, Solved, solve_line
from tests.integration.nginx_process import Nginx, need_nginx
from tests.integration.service_process import ROOT

pytestmark = pytest.mark.beside

PAGE = "https://maps.example"
TILE = "distances/c/0/1"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    need_nginx()
    data = tmp_path_factory.mktemp("nginx") / "data"
    with KeyedService(data, APSP_ACCEL_PREFIX="/apsp-files", APSP_CORS_ORIGINS=PAGE) as service:
        yield service


@pytest.fixture(scope="module")
def nginx(live: KeyedService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    address = live.url.removeprefix("http://")
    with Nginx(tmp_path_factory.mktemp("nginx") / "nginx", address, live.data) as server:
        yield server


@pytest.fixture(scope="module")
def http(live: KeyedService, nginx: Nginx) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=nginx.plain, headers={"Authorization": live.bearer}, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def solved(live: KeyedService) -> Solved:
    return solve_line(live)


def tile_of(live: KeyedService, solved: Solved) -> bytes:
    return (live.data / "jobs" / solved.job / "matrix.zarr" / TILE).read_bytes()


def test_nginx_sends_the_file_and_not_the_service(live: KeyedService, solved: Solved, http: httpx.Client, nginx: Nginx):
    whole = tile_of(live, solved)
    behind = live.http.get(f"{solved.zarr}/{TILE}")
    assert behind.content == b"", "the service left the file to nginx"
    assert behind.headers["x-accel-redirect"] == f"/apsp-files/jobs/{solved.job}/matrix.zarr/{TILE}"
    answer = http.get(f"{solved.zarr}/{TILE}", headers={"X-Request-ID": "abc"})
    assert (answer.status_code, answer.content) == (200, whole)
    assert "x-accel-redirect" not in answer.headers
    assert answer.headers["server"] == "nginx"
    assert answer.headers["x-request-id"] == "abc"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["cache-control"] == behind.headers["cache-control"]
    for name in ("x-content-type-options", "cross-origin-resource-policy", "content-security-policy"):
        assert answer.headers[name] == behind.headers[name], name
    assert http.get(f"{solved.zarr}/zarr.json").headers["content-type"] == "application/json"


def test_nginx_sends_files_of_quantities_with_odd_names(live: KeyedService, http: httpx.Client, nginx: Nginx):
    name = "5%41 é+"
    rows = f"a,b,km,{name}\n1,2,3,7\n".encode()
    graph = live.upload(rows, filename="g.csv", source="a", target="b", weight="km", also=name)
    job = live.wait(live.submit(graph["id"], also=[name])["id"])
    assert job["state"] == "successful", job
    key = f"also/{name}/c/0/0"
    answer = http.get(f"/v1/jobs/{job['id']}/zarr/{quote(key)}")
    whole = (live.data / "jobs" / job["id"] / "matrix.zarr" / key).read_bytes()
    assert (answer.status_code, answer.content, answer.headers["server"]) == (200, whole, "nginx")


def test_ranges_and_conditions(live: KeyedService, solved: Solved, http: httpx.Client):
    whole, path = tile_of(live, solved), f"{solved.zarr}/{TILE}"
    size = len(whole)
    for asked, part in (("0-99", whole[:100]), ("-4", whole[-4:]), (f"{size - 9}-", whole[-9:])):
        answer = http.get(path, headers={"Range": f"bytes={asked}"})
        assert (answer.status_code, answer.content) == (206, part)
        assert answer.headers["content-range"].endswith(f"/{size}")
    answer = http.get(path, headers={"Range": "bytes=0-7,-8"})
    assert answer.status_code == 206
    assert answer.headers["content-type"].startswith("multipart/byteranges; boundary=")
    assert whole[:8] in answer.content
    assert whole[-8:] in answer.content
    assert http.get(path, headers={"Range": f"bytes={size}-"}).status_code == 416
    head = http.head(path)
    assert (head.status_code, head.content, int(head.headers["content-length"])) == (200, b"", size)
    tag = head.headers["etag"]
    assert http.get(path, headers={"If-None-Match": tag}).status_code == 304
    for condition, status in ((tag, 206), ('"other"', 200), (head.headers["last-modified"], 206)):
        assert http.get(path, headers={"Range": "bytes=0-3", "If-Range": condition}).status_code == status


def test_xarray_reads_through_it(live: KeyedService, solved: Solved, nginx: Nginx):
    options = {"headers": {"Authorization": live.bearer}}
    with xarray.open_zarr(nginx.plain + solved.zarr, storage_options=options) as store:
        assert np.array_equal(store.distances.values, solved.distances)


def test_a_page_reads_through_it(solved: Solved, http: httpx.Client):
    answer = http.get(f"{solved.zarr}/{TILE}", headers={"Origin": PAGE, "Range": "bytes=0-3"})
    assert answer.status_code == 206
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert {"content-range", "etag"} <= set(answer.headers["access-control-expose-headers"].lower().split(", "))
    assert "origin" in answer.headers["vary"].lower()
    ask = {"Origin": PAGE, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    assert http.options(f"{solved.zarr}/{TILE}", headers={**ask, "Authorization": ""}).status_code == 200
    assert "access-control-allow-origin" not in http.get(f"{solved.zarr}/zarr.json").headers


def test_strangers_reach_no_file(live: KeyedService, solved: Solved, http: httpx.Client, nginx: Nginx):
    for header in ("", "Bearer apsp_000000000000_nothing"):
        answer = http.get(f"{solved.zarr}/{TILE}", headers={"Authorization": header})
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    inside = f"/apsp-files/jobs/{solved.job}/matrix.zarr/zarr.json"
    ways = (
        inside, "/apsp-files/apsp.db", "/apsp-files/jobs/../apsp.db", "/apsp-files/jobs/%2e%2e/apsp.db",
        "/apsp-files/jobs../apsp.db", "/apsp%2dfiles/jobs/" + inside.removeprefix("/apsp-files/jobs/"), "/" + inside,
        "/v1/../apsp-files/jobs/" + inside.removeprefix("/apsp-files/jobs/"),
        f"{solved.zarr}/../../../../apsp.db", f"{solved.zarr}/%2e%2e/%2e%2e/%2e%2e/apsp.db",
    )  # fmt: skip
    for key in (live.bearer, ""):
        for path in ways:
            status, body = raw(nginx, path, key)
            assert status in (400, 401, 404), (path, status, body[:200])
    claimed = {"X-Accel-Redirect": "/apsp-files/jobs/", "X-Original-URI": inside, "X-Sendfile": inside}
    assert http.get("/v1/version", headers=claimed).json().keys() == live.http.get("/v1/version").json().keys()


def raw(nginx: Nginx, path: str, bearer: str) -> tuple[int, bytes]:
    """Status and body of a GET whose path goes out as it is: a client would tidy it up."""
    host, port = nginx.plain.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", f"Authorization: {bearer}", "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


def test_problems_pass_as_the_service_words_them(live: KeyedService, http: httpx.Client):
    assert http.get("/v1/jobs/nobody/zarr/zarr.json").json()["code"] == "not-found"
    solved = solve_line(live, n=200)
    assert http.get(f"{solved.zarr}/distances/.zarray").json()["code"] == "not-found"
    assert http.delete(f"/v1/jobs/{solved.job}").status_code == 204
    answer = http.get(f"{solved.zarr}/zarr.json")
    assert (answer.status_code, answer.json()["code"]) == (410, "gone")


def test_tiles_in_use_are_nobody_elses_and_gone_at_once(live: KeyedService, http: httpx.Client):
    """After many answers about a tile, when all that could be remembered is."""
    job = solve_line(live, n=200).job
    tile = f"/v1/jobs/{job}/zarr/distances/c/0/0"
    other = KeyStore(JobStore(live.data / "apsp.db").database)
    record, key = other.create("eve", ("read",))
    for _ in range(5):
        assert http.get(tile).status_code == 200
        assert http.get(tile, headers={"Authorization": f"Bearer {key}"}).status_code == 404
        assert http.get(tile, headers={"Authorization": ""}).status_code == 401
    other.revoke(record.id)
    refused, deadline = 0, time.monotonic() + REMEMBERED_SECONDS + 2
    while refused != 401:
        assert time.monotonic() < deadline
        refused = http.get(tile, headers={"Authorization": f"Bearer {key}"}).status_code
        assert refused in (404, 401)
        time.sleep(0.2)
    assert http.delete(f"/v1/jobs/{job}").status_code == 204
    answer = http.get(tile)
    assert (answer.status_code, answer.json()["code"]) == (410, "gone")


def test_a_file_that_nginx_cannot_send_is_no_404(live: KeyedService, solved: Solved, tmp_path: Path):
    """Here because nginx looks elsewhere: as it would if the file went between the service's look and its own."""
    elsewhere = tmp_path / "data"
    store = live.data / "jobs" / solved.job / "matrix.zarr"
    shutil.copytree(store / "distances", elsewhere / "jobs" / solved.job / "matrix.zarr" / "distances")
    shown = elsewhere / "jobs" / solved.job / "matrix.zarr" / TILE
    shown.unlink()
    shown.symlink_to(store / TILE)
    with Nginx(tmp_path / "nginx", live.url.removeprefix("http://"), elsewhere) as nginx:
        for key in ("zarr.json", TILE):
            answer = httpx.get(f"{nginx.plain}{solved.zarr}/{key}", headers={"Authorization": live.bearer})
            assert answer.status_code == 500, (key, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert (answer.json()["code"], answer.json()["status"]) == ("storage-failed", 500)
        whole = httpx.get(f"{nginx.plain}{solved.zarr}/distances/c/0/0", headers={"Authorization": live.bearer})
        assert whole.status_code == 200


def test_tls_ends_here_and_plain_http_is_sent_there(live: KeyedService, solved: Solved, nginx: Nginx):
    context = ssl.create_default_context(cafile=nginx.folder / "cert.pem")
    context.check_hostname = False
    with httpx.Client(base_url=nginx.tls, verify=context, headers={"Authorization": live.bearer}) as client:
        for path, length in ((f"{solved.zarr}/{TILE}", len(tile_of(live, solved))), ("/v1/version", None)):
            answer = client.get(path)
            assert answer.status_code == 200
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            assert length in (None, len(answer.content))
    answer = httpx.get(f"{nginx.redirect}{solved.zarr}/zarr.json?x=1", headers={"Authorization": live.bearer})
    assert (answer.status_code, answer.headers["location"]) == (308, f"https://127.0.0.1{solved.zarr}/zarr.json?x=1")
    assert "strict-transport-security" not in httpx.get(f"{nginx.plain}/health/live").headers


def test_uploads_stream_through_it(live: KeyedService, http: httpx.Client, nginx: Nginx):
    lines = (f"{i} {i + 1} 1\n".encode() for i in range(200_000))
    answer = http.post("/v1/graphs", content=lines)
    assert (answer.status_code, answer.json()["n"]) == (201, 200_001)
    host, port = nginx.plain.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = [
            "POST /v1/graphs HTTP/1.1",
            f"Host: {host}",
            f"Authorization: {live.bearer}",
            "Content-Length: 9",
            "",
            "",
        ]
        connection.sendall("\r\n".join(head).encode() + b"1 2 3")
        incoming = live.data / "incoming"
        deadline = time.monotonic() + 30
        while not list(incoming.iterdir()):  # the service has it before all of it has come
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_systemd_unit_is_understood(tmp_path: Path):
    text = (ROOT / "deploy" / "apsp.service").read_text().replace("/opt/apsp/.venv/bin/apsp", "/bin/true")
    unit = tmp_path / "apsp.service"
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
