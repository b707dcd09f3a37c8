"""The image, built and run by a real engine: nobody's account, a root that is read-only, memory that is limited."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.deploy.engine import Engine, compose_program, open_engine

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {"pipconf": Path("/etc/pip.conf"), "cacert": Path("/etc/ssl/certs/ca-certificates.crt")}
# other tests run meanwhile
pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.data, pytest.mark.timeout(1500)]


@dataclass
class Image:
    """An image that was built here.

    Attributes:
        name: for ``docker run``; canaries: what was written into the build's secrets.
    """

    engine: Engine
    name: str
    canaries: list[str]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    engine = open_engine()
    try:
        folder = tmp_path_factory.mktemp("secrets")
        words, canaries = [], []
        for name, path in SECRETS.items():
            canaries.append(f"canary-{secrets.token_hex(16)}")
            # both formats take a comment
            (folder / name).write_text((path.read_text() if path.exists() else "") + f"\n# {canaries[-1]}\n")
            if path.exists():
                words += ["--secret", f"id={name},src={folder / name}"]
        words += ["--build-arg", f"BASE_IMAGE={engine.base_image()}", "--build-arg", "REVISION=0123abc"]
        # compiling all kernels takes minutes: ``auto`` asks for those of this machine, which runs the image
        words += ["--build-arg", f"KERNEL_LEVELS={os.environ.get('APSP_IMAGE_KERNELS', '')}"]
        # the tests' own network: an index may be on a host that only this machine knows
        engine.run("build", "--network", "host", "-f", "deploy/Dockerfile", "--target", "cpu", *words,
                   "-t", "apsp-test:cpu", ROOT, seconds=1200)  # fmt: skip
        yield Image(engine, "apsp-test:cpu", canaries)
        engine.remove_image("apsp-test:cpu")
    finally:
        engine.stop()


class Container:
    """A running service; ``http`` talks to its port."""

    def __init__(self, image: Image, name: str) -> None:
        self.engine, self.name = image.engine, name
        self.engine.run(
            *("run", "--detach", "--name", name, "--init", "--read-only", "--tmpfs", "/tmp", "--memory", "2g"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--stop-timeout", "60"),
            *("-v", f"{name}-data:/data", "-v", f"{name}-cache:/cache", "-e", "APSP_FIRST_KEY=true"),
            *("--health-interval", "3s", "-p", "127.0.0.1:0:8000", image.name),
        )
        self.key = ""
        self.http: Any = None

    def connect(self) -> None:
        """Wait until the engine calls it healthy, and until a runner is there; the port is new after each start."""
        for path in ("{{.State.Health.Status}}", "{{.State.Status}}"):
            wait_for(lambda path=path: self.inspect(path) in ("healthy", "running"), 180, self.logs)
        port = self.engine.run("port", self.name, "8000/tcp").stdout.split("\n")[0].rpartition(":")[2]
        self.key = self.key or re.search(r"key, shown this once: (\S+)", self.logs())[1]
        self.close()
        self.http = client(port, self.key)
        wait_for(lambda: self.http.get("/health/ready").status_code == 200, 180, self.logs)

    def inspect(self, path: str) -> str:
        return self.engine.run("inspect", "--format", path, self.name).stdout.strip()

    def logs(self) -> str:
        done = self.engine.run("logs", self.name)
        return done.stdout + done.stderr

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.engine.run("exec", self.name, *words, check=False)

    def close(self) -> None:
        """Forget the connections."""
        if self.http is not None:
            self.http.close()

    def remove(self) -> None:
        self.close()
        self.engine.run("rm", "--force", "--volumes", self.name, check=False)
        self.engine.run("volume", "rm", f"{self.name}-data", f"{self.name}-cache", check=False)


def client(port: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=180)


def wait_for(happened: Any, seconds: float, why: Any) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, why()
        time.sleep(0.2)


def upload(http: httpx.Client, path: Path) -> str:
    response = http.post("/v1/graphs", content=path.read_bytes(), params={"name": path.name})
    assert response.status_code in (200, 201), response.text
    return str(response.json()["id"])


def ended(http: httpx.Client, job: str) -> dict[str, Any]:
    until = time.monotonic() + 180
    while True:
        found = http.get(f"/v1/jobs/{job}").json()
        if found["state"] not in ("accepted", "running"):
            return dict(found)
        assert time.monotonic() < until, found
        time.sleep(0.2)


@pytest.fixture(scope="module")
def container(image: Image) -> Iterator[Container]:
    found = Container(image, f"apsp-test-{secrets.token_hex(4)}")
    try:
        found.connect()
        yield found
    finally:
        found.remove()


def test_the_image_says_what_it_is(image: Image):
    config = json.loads(image.engine.run("image", "inspect", image.name).stdout)[0]["Config"]
    assert config["User"] == "10001:10001"
    assert set(config["Volumes"]) == {"/data", "/cache"}
    assert set(config["ExposedPorts"]) == {"8000/tcp", "9464/tcp"}
    assert config["Entrypoint"] == ["apsp"]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.revision"] == "0123abc"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_secrets_of_the_build_are_not_in_it(image: Image, tmp_path: Path):
    archive = tmp_path / "image.tar"
    image.engine.run("save", "-o", archive, image.name)
    layers, seen = 0, 0
    with tarfile.open(archive) as outer:
        for member in outer:
            file = outer.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            rest = b""
            while part := file.read(1 << 24):
                found = [canary for canary in image.canaries if canary.encode() in rest + part]
                assert found == [], member.name
                seen += b"apsp-0.1.0.dist-info" in rest + part
                rest = part[-100:]
            layers += 1
    assert layers >= 4
    assert seen, "the search looks into the layers"


def test_the_bill_of_materials_names_what_was_locked(image: Image):
    words = ("run", "--rm", "--network", "none", "--entrypoint", "cat", image.name, "/opt/apsp/sbom.cdx.json")
    bill = json.loads(image.engine.run(*words).stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "apsp"
    refs = [component["bom-ref"] for component in bill["components"]]
    assert len(refs) == len(set(refs))
    lock = (ROOT / "deploy" / "locks" / "run.lock").read_text()
    # those with a condition may be for other systems
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;]+) \\$", lock, re.MULTILINE):
        assert f"pkg:pypi/{name}@{version}" in refs
    assert not any(ref.startswith(("pkg:pypi/pip@", "pkg:pypi/setuptools@")) for ref in refs)


def test_it_runs_as_nobody_and_cannot_change_itself(container: Container):
    assert container.inside("id", "-u").stdout.strip() == "10001"
    refused = container.inside("touch", "/opt/apsp/x")
    assert refused.returncode != 0
    assert "Read-only" in refused.stderr
    assert container.inside("sh", "-c", "command -v gcc cc pip").stdout == ""
    assert container.inspect("{{.HostConfig.Memory}}") == str(2 * 2**30)


def check_rome(http: httpx.Client, data_dir: Path) -> None:
    """The roads of Rome, uploaded, solved and asked for, against the reference."""
    graph = upload(http, data_dir / "rome99.gr")
    created = http.post("/v1/jobs", json={"graph": graph})
    assert created.status_code == 201, created.text
    job = ended(http, created.json()["id"])
    assert job["state"] == "successful", job
    known = json.loads((data_dir / "REFERENCE.json").read_text())["graphs"]["rome99.gr"]["apsp"]
    pairs = [[u, v] for u, v, _ in known["pairs"]]
    answer = http.post(f"/v1/jobs/{job['id']}/distances", json={"pairs": pairs})
    assert answer.json()["distances"] == [distance for _, _, distance in known["pairs"]]


def test_it_solves_a_real_graph_through_its_port(container: Container, data_dir: Path):
    assert httpx.get(f"{container.http.base_url}/v1/jobs").status_code == 401
    check_rome(container.http, data_dir)


def test_it_is_stopped_in_time_and_goes_on_where_it_was(container: Container, data_dir: Path):
    graph = upload(container.http, data_dir / "delaunay_n16.mtx.gz")
    created = container.http.post("/v1/jobs", json={"graph": graph, "sources": list(range(1, 2001))})
    assert created.status_code == 201, created.text
    job = created.json()["id"]
    wait_for(lambda: container.http.get(f"/v1/jobs/{job}").json()["state"] == "running", 60, container.logs)
    began = time.monotonic()
    container.engine.run("stop", container.name)
    assert time.monotonic() - began < 30
    assert container.inspect("{{.State.ExitCode}} {{.State.OOMKilled}}") == "0 false"
    container.engine.run("start", container.name)
    container.connect()
    assert ended(container.http, job)["state"] == "successful"


@pytest.mark.skipif(not os.environ.get("APSP_COMPOSE"), reason="takes a minute, for whom asks for it: APSP_COMPOSE=1")
def test_compose_starts_api_and_runner(image: Image, data_dir: Path):
    program = compose_program()
    words = [program, "-f", ROOT / "deploy" / "compose" / "compose.yaml", "-p", f"apsp-test-{secrets.token_hex(4)}"]
    # nothing is built or pulled, and any free ports will do
    settings = {"APSP_IMAGE": image.name, "APSP_PUBLISH": "127.0.0.1:0", "APSP_PUBLISH_METRICS": "127.0.0.1:0"}

    def compose(*more: str, check: bool = True) -> str:
        done = subprocess.run(
            [*map(str, words), *more], env={**image.engine.environment, **settings}, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0 or not check, done.stderr[-3000:]
        return done.stdout + done.stderr

    try:
        compose("up", "--detach", "--no-build", "--pull", "never")
        key = re.search(r"key, shown this once: (\S+)", compose("logs", "--no-log-prefix", "api"))[1]
        port, figures = (compose("port", "api", inside).strip().rpartition(":")[2] for inside in ("8000", "9464"))
        with client(port, key) as http:
            wait_for(lambda: http.get("/health/ready").status_code == 200, 180, lambda: compose("logs"))
            check_rome(http, data_dir)
            devices = http.get("/v1/devices").json()["devices"]
        assert [device["runner"] for device in devices] == ["runner/cpu"]
        assert 'apsp_jobs{status="successful"} 1.0' in httpx.get(f"http://127.0.0.1:{figures}/metrics").text
    finally:
        compose("down", "--volumes", "--timeout", "30", check=False)
