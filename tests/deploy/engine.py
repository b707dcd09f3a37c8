"""A container engine for the tests: the one that is there, or Debian's own, started for them and ended with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

#: seconds that an engine may take to start
_START = 30.0
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_BASE = "apsp-test-base:latest"


def missing(message: str) -> pytest.skip.Exception:
    """Skip, or fail where CI says that images must be built."""
    if os.environ.get("APSP_REQUIRE_IMAGE") == "1":
        pytest.fail(message)
    return pytest.skip.Exception(message)


class Engine:
    """``docker`` with its environment."""

    def __init__(self, client: str, environment: dict[str, str], folder: Path) -> None:
        self.client, self.environment, self.folder = client, environment, folder
        self._daemon: subprocess.Popen[bytes] | None = None

    def run(self, *words: object, check: bool = True, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run ``docker WORDS``; its failure fails the test with what it said."""
        done = subprocess.run(
            [self.client, *map(str, words)], env=self.environment, capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"docker {words[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def answers(self) -> bool:
        """Whether there is a daemon behind the client."""
        return self.run("info", "--format", "{{.ServerVersion}}", check=False).returncode == 0

    def start_daemon(self, program: str) -> str | None:
        """Start a daemon of our own; what is wrong if it does not come up."""
        folder = self.folder
        words = [program, "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid",
                 "-H", f"unix://{folder / 'd.sock'}", "--default-ulimit", "nofile=4096:4096"]  # fmt: skip
        self.environment["DOCKER_HOST"] = f"unix://{folder / 'd.sock'}"
        with (folder / "log").open("wb") as log:
            self._daemon = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log)
        until = time.monotonic() + _START
        while time.monotonic() < until and self._daemon.poll() is None:
            if (folder / "d.sock").exists() and self.answers():
                return None
            time.sleep(0.1)
        self.stop()
        return (folder / "log").read_text(errors="replace")[-600:]

    def stop(self) -> None:
        """End our daemon, with everything that it kept."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def remove_image(self, name: str) -> None:
        """Remove an image from an engine that stays; our own loses all of them when it is stopped."""
        if self._daemon is None:
            self.run("image", "rm", "-f", name, check=False)

    def base_image(self) -> str:
        """An image with Python to build on: APSP_BASE_IMAGE, or Debian's, made here from its packages."""
        if named := os.environ.get("APSP_BASE_IMAGE"):
            return named
        program = shutil.which("mmdebstrap")
        if program is None or os.geteuid() != 0:
            raise missing("there is no base image: set APSP_BASE_IMAGE, or install mmdebstrap and be root")
        archive = self.folder / "base.tar"
        words = [program, "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", archive]
        words += [_SOURCES] if _SOURCES.exists() else []
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise missing(f"no base image can be made: {done.stderr[-600:]}")
        self.run("import", archive, _BASE)
        archive.unlink()
        return _BASE


def open_engine() -> Engine:
    """An engine that builds with BuildKit; skips, with the reason, where none can be had."""
    clients = dict.fromkeys(filter(None, [shutil.which("docker"), shutil.which("docker", path="/usr/bin")]))
    folder = Path(tempfile.mkdtemp(prefix="apsp-engine-"))
    environment = {**os.environ, "DOCKER_CONFIG": str(folder / "config"), "DOCKER_BUILDKIT": "1"}
    engine = next((e for e in (Engine(c, environment, folder) for c in clients) if _builds(e)), None)
    if engine is None:
        shutil.rmtree(folder)
        raise missing("there is no docker client that builds with BuildKit (Debian: apt-get install docker.io)")
    if engine.answers():
        return engine
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    trouble = "it needs root" if os.geteuid() else "there is no dockerd" if program is None else None
    trouble = trouble or engine.start_daemon(str(program))
    if trouble is not None:
        engine.stop()
        raise missing(f"no container engine answers, and none can be started: {trouble}")
    return engine


def compose_program() -> Path:
    """Docker Compose itself: what its package puts in front of it hides the exit status."""
    (found,) = Path(sys.executable).parent.parent.glob("lib/python3*/site-packages/compose/docker-compose")
    return found


def _builds(engine: Engine) -> bool:
    """BuildKit is in clients before 23, and a plugin of those since."""
    version = engine.run("version", "--format", "{{.Client.Version}}", check=False).stdout.strip()
    first = version.partition(".")[0]
    return (first.isdigit() and 18 < int(first) < 23) or engine.run("buildx", "version", check=False).returncode == 0
