"""Runs nginx on free ports of the loopback, as the current user, with the configuration in deploy/."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.service_process import ROOT
from tests.ports import free_ports

#: set where nginx must be there, as in CI
REQUIRED = "APSP_REQUIRE_NGINX"
#: outside of the site's configuration: where nginx may write, and who it is
MAIN = """
{user}
worker_processes 2;
daemon off;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/apsp.conf;
    server {{ listen 127.0.0.1:{plain}; include apsp-locations.conf; }}
}}
"""


def program() -> str | None:
    """nginx; Debian keeps it off the path of users."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def need_nginx() -> None:
    """Skip the test where nginx is not installed; fail it where it must be."""
    if program() is None:
        message = f"nginx is not installed (Debian: apt-get install nginx-light); {REQUIRED}=1 makes that an error"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(message)
        pytest.skip(message)


def _spelling_of_http2() -> dict[str, str]:
    """How the directive http2 is written for an nginx before 1.25.1, which knows only the word of listen."""
    said = subprocess.run([str(program()), "-v"], capture_output=True, text=True, check=True).stderr
    version = tuple(map(int, re.findall(r"nginx/(\d+)\.(\d+)\.(\d+)", said)[0]))
    return {} if version >= (1, 25, 1) else {"    http2 on;\n": "", " ssl;": " ssl http2;"}


class Nginx:
    """Started on entering, stopped on leaving; ``plain``, ``tls`` and ``redirect`` are its addresses.

    Args:
        folder: for its files; ``service``: host and port that it stands before; ``data``: the service's data directory.
    """

    def __init__(self, folder: Path, service: str, data: Path) -> None:
        self.folder = folder
        folder.mkdir()
        ports = dict(zip(("plain", "tls", "redirect"), free_ports(3), strict=True))
        self.plain = f"http://127.0.0.1:{ports['plain']}"
        self.tls, self.redirect = f"https://127.0.0.1:{ports['tls']}", f"http://127.0.0.1:{ports['redirect']}"
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(MAIN.format(user=user, folder=folder, plain=ports["plain"]))
        self._fill("apsp.conf", {
            "listen 443 ": f"listen 127.0.0.1:{ports['tls']} ", "listen 80;": f"listen 127.0.0.1:{ports['redirect']};",
            "127.0.0.1:8000": service, "/etc/ssl/certs/apsp.pem": f"{folder}/cert.pem",
            "/etc/ssl/private/apsp.key": f"{folder}/cert.key", **_spelling_of_http2(),
        })  # fmt: skip
        self._fill("apsp-locations.conf", {"/var/lib/apsp/": f"{data}/"})
        subject = ["-subj", "/CN=127.0.0.1", "-keyout", str(folder / "cert.key"), "-out", str(folder / "cert.pem")]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
        subprocess.run(command, check=True, capture_output=True)

    def _fill(self, name: str, here: dict[str, str]) -> None:
        """Write a shipped file with this machine's names in it."""
        text = (ROOT / "deploy" / "nginx" / name).read_text()
        for shipped, own in here.items():
            assert shipped in text, (name, shipped)
            text = text.replace(shipped, own)
        (self.folder / name).write_text(text)

    def __enter__(self) -> Nginx:
        command = [str(program()), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]
        with (self.folder / "words").open("wb") as words:
            self.process = subprocess.Popen(command, stdout=words, stderr=words)
        deadline = time.monotonic() + 30
        while not self._listens():
            assert self.process.poll() is None, self.words()
            assert time.monotonic() < deadline, self.words()
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def words(self) -> str:
        """What nginx complained of."""
        return "".join(path.read_text() for path in (self.folder / "words", self.folder / "error.log") if path.exists())

    def _listens(self) -> bool:
        host, port = self.plain.removeprefix("http://").split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0
