"""A private PostgreSQL server for tests: in a temporary folder, reached through a socket file, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest

#: set where PostgreSQL must be there, as in CI
REQUIRED = "APSP_REQUIRE_POSTGRES"


def binaries() -> Path | None:
    """The folder of initdb and postgres; Debian keeps them off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Postgres:
    """One server; ``url()`` gives a fresh, empty database on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._bin = folder, binaries()
        assert self._bin is not None
        # The server refuses to run as root: then it runs as somebody else, to whom the folder belongs.
        self._user: dict[str, Any] = {"user": _somebody()} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(folder, self._user["user"])
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "apsp", "-E", "UTF8", "--no-sync", "--locale=C")
        # a server outlives a test process that is killed: this shell stops it when the pipe to it is closed
        self._watch = subprocess.Popen(
            ["sh", "-c", 'cat; "$0" -D data -m immediate stop; rm -rf data', str(self._bin / "pg_ctl")],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, **self._user,
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=200 -c shared_buffers=32MB"
        self._run("pg_ctl", "-D", "data", "-w", "-t", "60", "-l", "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``fast`` cuts the connections, ``immediate`` is a crash."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def close(self) -> None:
        """Stop it for good."""
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait(60)

    def kill(self) -> None:
        """Stop it as a power cut would."""
        number = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(number, signal.SIGQUIT)

    def url(self) -> str:
        """A new database."""
        import psycopg  # only here: machines that test nothing but kernels lack it

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(f"host={self.folder} user=apsp dbname=postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://apsp@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        assert self._bin is not None
        command = [str(self._bin / program), *arguments]
        # pg_ctl's server inherits the pipes: a file takes its words, so that nothing waits for it to end
        with (self.folder / "commands").open("ab") as words:
            done = subprocess.run(
                command,
                cwd=self.folder,
                stdout=words,
                stderr=words,
                stdin=subprocess.DEVNULL,
                check=False,
                **self._user,
            )
        assert done.returncode == 0, (command, (self.folder / "commands").read_text()[-2000:])


def open_postgres() -> Postgres:
    """A started server; skips the test where PostgreSQL is not installed, fails it where it must be."""
    if binaries() is None:
        message = f"PostgreSQL is not installed (Debian: apt-get install postgresql); {REQUIRED}=1 makes that an error"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(message)
        pytest.skip(message)
    # a short path: socket files may not be longer than 107 bytes; and one that the server's user may enter
    folder = Path(tempfile.mkdtemp(prefix="apsp-pg-", dir="/tmp"))
    folder.chmod(0o755)
    return Postgres(folder)


def close_postgres(server: Postgres) -> None:
    """Stop the server and remove all of it."""
    server.close()
    shutil.rmtree(server.folder, ignore_errors=True)


def _somebody() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)
