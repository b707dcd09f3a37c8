"""An S3-compatible server on the loopback, in a process of its own, with one bucket."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

_START = 60.0
BUCKET = "apsp-test"


@dataclass
class S3Server:
    """``environment`` makes a client of a process; ``address`` is that of the bucket."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }

    @property
    def address(self) -> str:
        return f"s3://{BUCKET}"


def open_s3() -> S3Server:
    """Start the server and make the bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    until = time.monotonic() + _START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.05)
    server = S3Server(port, process)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    signed = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    connection.request("PUT", f"/{BUCKET}", headers={"Content-Length": "0", "Authorization": signed})
    assert connection.getresponse().status == 200
    connection.close()
    return server


def close_s3(server: S3Server) -> None:
    """End the server."""
    server.process.kill()
    server.process.wait()
