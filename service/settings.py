"""Reads the settings of the service once, with types: from arguments, else from variables ``APSP_*``, else defaults."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from service.units import parse_size
from storage.errors import InvalidRequest
from storage.number_texts import decimal_number, whole_number

PREFIX: Final = "APSP_"
_ADDRESS: Final = r"^s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](?:/[^/?#]+)*/?$"


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value, field="size")
    except InvalidRequest as error:
        raise ValueError(str(error)) from error


def _whole(value: object) -> object:
    return whole_number(value) if isinstance(value, str) else value


def _decimal(value: object) -> object:
    return decimal_number(value, infinite=True) if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(_size), Field(ge=1, lt=2**63)]
#: numbers; the environment holds their texts
Whole = Annotated[int, BeforeValidator(_whole)]
Real = Annotated[float, BeforeValidator(_decimal)]
Count = Annotated[Whole, Field(ge=1, lt=2**63)]


class Settings(BaseModel):
    """The settings of the service.  The field ``max_cells`` has the environment variable ``APSP_MAX_CELLS``, and so on.

    Sizes are numbers of bytes; a text such as ``4GiB`` is accepted, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Whole = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    metrics_host: str = Field("127.0.0.1", description="Address on which Prometheus finds metrics.")
    metrics_port: Whole = Field(9464, ge=0, le=65535, description="Port of /metrics; 0 for none.")
    data_dir: Path = Field(Path("apsp-data"), description="Folder of the database, the graphs and the results.")
    store_url: str | None = Field(
        None, pattern=_ADDRESS, description="s3://BUCKET/PREFIX of graphs and results; the folder if not set."
    )
    database_url: str | None = Field(None, description="postgresql://... or sqlite:///FILE; a file there if not set.")
    database_timeout: Real = Field(30.0, gt=0, description="Seconds to wait for a lock of the database.")
    node: str | None = Field(None, max_length=60, description="Name of this machine among the runners' machines.")
    runners: str = Field(
        "auto", description="Runners of this node: auto, none, or devices: cpu; cpu,short; cuda0,cuda1; cuda0-3."
    )
    short_seconds: Real = Field(5.0, gt=0, description="Most predicted seconds of a job that the runner short takes.")
    short_memory: Size = Field(
        2**30, description="Most bytes of such a job; so many are kept free for it beside other runners."
    )
    gpus_per_runner: Count = Field(
        1, description="GPUs of each runner if runners is auto; a job uses as many as save time."
    )
    readers: Count = Field(2, description="Processes that read uploaded graphs.")
    planners: Count = Field(2, description="Processes that plan jobs.")
    read_seconds: Real = Field(60.0, gt=0, description="Seconds that reading an upload may take, whatever its size.")
    min_read_rate: Size = Field(512 * 2**10, description="Bytes of an upload that add a second to that limit.")
    answerers: Count = Field(2, description="Processes that compute answers from prepared results.")
    answer_seconds: Real = Field(120.0, gt=0, description="Seconds that one answer from a prepared result may take.")
    tables_memory: Size = Field(
        4 * 2**30, description="Bytes of tables of earlier results that each of these processes keeps."
    )
    answer_device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu",
        description="Where they compute: cpu; cuda, a GPU that holds the tables; auto, if there is one.",
    )
    answer_device_memory: Size | None = Field(
        None, description="Bytes of the GPU's memory that the tables of one result may take; what is free if not set."
    )
    chunk_cache: Size = Field(256 * 2**20, description="Bytes of computed chunks of prepared results that are kept.")
    plan_seconds: Real = Field(600.0, gt=0, description="Seconds that planning a job may take.")
    task_memory: Size | None = Field(
        None, description="Bytes of memory that reading or planning may take; 3/4 of what is free if not set."
    )
    threads: Count | None = Field(None, description="Processors that a job may use; all if not set.")
    memory: Size | None = Field(None, description="Memory in bytes that a job may use; what is free if not set.")
    scheduler: str | None = Field(None, description="Address of a Dask scheduler whose workers jobs may ask for.")
    compression: str = Field("none", description="Compression of result stores.")
    max_upload_bytes: Size = Field(4 * 2**30, description="Bytes of one uploaded graph file, as sent.")
    max_graph_bytes: Size = Field(32 * 2**30, description="Bytes of one graph file after decompression.")
    max_ratio: Count = Field(200, description="Most times its compressed size that a file may expand to.")
    max_vertices: Count = Field(50_000_000, description="Vertices of a graph.")
    max_arcs: Count = Field(2_000_000_000, description="Arcs of a graph.")
    max_body_bytes: Size = Field(16 * 2**20, description="Bytes of a JSON request.")
    max_bodies_bytes: Size = Field(64 * 2**20, description="Bytes of JSON requests of one key at the same time.")
    max_cells: Count = Field(
        4_000_000, description="Matrix entries in one answer of rows; numbers of a network for maps."
    )
    max_pairs: Count = Field(100_000, description="Pairs in one request of distances.")
    max_paths: Count = Field(1_000, description="Routes in one request.")
    max_requests_per_second: Count = Field(5_000, description="Requests a second of one key, twice that at once.")
    max_computing_seconds: Real = Field(
        120.0, gt=0, description="Processor seconds a minute of one key for answers from prepared results."
    )
    max_streams: Count = Field(32, description="Open event streams of one key.")
    max_connections: Count = Field(10_000, description="Open connections; fewer if the system allows fewer files.")
    max_tables: Count = Field(100, description="Uploaded tables of opportunities and demands of one key.")
    max_table_bytes: Size = Field(64 * 2**20, description="Bytes of one uploaded table, as sent.")
    max_uploads: Count = Field(4, description="Uploads of one key at the same time.")
    max_body_silence: Count = Field(30, description="Seconds without a byte after which a request is refused.")
    min_body_rate: Size = Field(1024, description="Least bytes a second of a body after that many seconds.")
    auth: bool = Field(True, description="Whether callers need keys; if not, the service listens on the loopback only.")
    first_key: bool = Field(False, description="Make and print a first key, whatever address is listened on.")
    proxies: str = Field("127.0.0.1", description="Addresses and networks of trusted proxies, with commas.")
    cors_origins: str = Field("", description="Origins of web pages that may use the API, with commas; * for all.")
    accel_prefix: str = Field("", description="Where the reverse proxy finds the data directory (X-Accel-Redirect).")
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="Format of the logs; auto: text on terminals, else JSON."
    )
    log_requests: bool = Field(False, description="Log every request, not only changes and failures.")
    matrix_cache: Count = Field(16, description="Result stores kept open for queries.")
    max_open_jobs: Count = Field(1000, description="Open jobs of one key.")
    max_open_jobs_total: Count = Field(10_000, description="Open jobs of all keys.")
    max_wait_seconds: Count = Field(30, description="Seconds that an answer waits for a job at most (Prefer: wait).")
    max_attempts: Count = Field(3, description="Attempts at a job whose runner was lost; then it fails.")
    lease_seconds: Real = Field(
        60.0, gt=0, description="Seconds without a sign of life after which a runner loses its job."
    )
    heartbeat_seconds: Real = Field(5.0, gt=0, description="Seconds between two signs of life of a runner.")
    cancel_term_seconds: Real = Field(5.0, gt=0, description="Seconds until a cancelled job's runner gets SIGTERM.")
    cancel_kill_seconds: Real = Field(10.0, gt=0, description="Further seconds until it gets SIGKILL.")
    probe_seconds: Real = Field(
        60.0, gt=0, description="Seconds of a probe; a GPU that takes longer is out of service."
    )
    retain_seconds: Real | None = Field(
        None, gt=0, description="Seconds after which results are removed; never if not set."
    )
    retain_bytes: Size | None = Field(
        None, description="Bytes of all results; if there are more, the oldest are removed."
    )
    tombstone_seconds: Real = Field(
        30 * 86400.0, gt=0, description="Seconds for which a removed job is answered with 410."
    )
    drain_seconds: Real = Field(0.0, ge=0, description="Seconds between reporting not ready and closing, at shutdown.")
    runner_nice: Whole = Field(10, ge=0, le=19, description="Niceness of runners, so that the API goes first.")
    stop_seconds: Real = Field(20.0, gt=0, description="Seconds for requests and the running tile at shutdown.")

    @field_validator("accel_prefix")
    @classmethod
    def _on_the_disk(cls, value: str, others: ValidationInfo) -> str:
        if value and others.data.get("store_url"):
            raise ValueError("the proxy sends files of the disk, and APSP_STORE_URL keeps results elsewhere")
        return value

    @field_validator("proxies")
    @classmethod
    def _addresses(cls, value: str) -> str:
        items = [item.strip() for item in value.split(",")]
        for item in items:
            if item != "*":  # uvicorn would accept a host name, which matches no client's address
                ipaddress.ip_network(item)
        if "*" in items and len(items) > 1:  # uvicorn reads * as all addresses only if it is the only item
            raise ValueError("* stands for all addresses, so it stands alone")
        return value

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **arguments: object) -> Settings:
        """Return settings from ``arguments`` (None means not given), else from ``environ``, else the defaults.

        Raises:
            InvalidRequest: a value is invalid; the message names the setting and the value.
        """
        source = os.environ if environ is None else environ
        known = cls.model_fields
        values: dict[str, object] = {name: source[variable(name)] for name in known if source.get(variable(name))}
        values |= {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            spelled = name if arguments.get(name) is not None else variable(name)
            message = f"{spelled}: {first['msg']}, found {values.get(name)!r}"
            raise InvalidRequest(message, field=spelled) from error

    def environment(self) -> dict[str, str]:
        """Return the environment variables from which :meth:`load` returns these settings in a child process."""
        return {variable(name): str(value) for name, value in self if value is not None}

    @property
    def database(self) -> Path | str:
        """The job database: a URL, or an SQLite file."""
        return self.database_url or self.data_dir / "apsp.db"

    @property
    def node_name(self) -> str:
        """The name of this machine, in a form that can be part of a file name."""
        return re.sub(r"[^A-Za-z0-9_.\-]", "-", self.node or socket.gethostname())[:60]

    def slot(self, device: str) -> str:
        """Return the name of a runner's slot, NODE/DEVICE, which is unique among all nodes that share the database."""
        return f"{self.node_name}/{device}"

    def runner_lock(self, device: str) -> Path:
        """Return the lock file that the runner of a device of this node holds while it lives."""
        return self.data_dir / "runners" / f"{self.node_name}-{device}.lock"

    def store(self, job_id: str) -> Path:
        """Return the path of a job's store on the disk; with results in an object store, it holds work in progress."""
        return self.data_dir / "jobs" / job_id / "matrix.zarr"

    def address(self, job_id: str) -> str | None:
        """Return the address of a job's result store in the object store; None if results are on the disk."""
        return None if self.store_url is None else f"{self.store_url.rstrip('/')}/jobs/{job_id}/matrix.zarr"


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()
