"""Metrics for Prometheus on their own port: requests are counted as they end, other values are read on each scrape.

No label holds the id of a job, a key or a graph.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from service.jobs.checkpoints import checkpoint_time
from service.settings import Settings
from service.state import silent
from storage.errors import StorageFailed
from storage.jobs.store import JobRecord, JobStore, RunnerRecord
from storage.version import VERSION

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

log = logging.getLogger(__name__)

_METHODS: Final = {"GET", "HEAD", "POST", "DELETE", "OPTIONS"}
_REQUEST_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_JOB_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
#: seconds by which the periods of two queries for ended jobs overlap, so that an end that is stored late is not missed
_OVERLAP: Final = 60.0
_DIRECTIONS: Final = ("read", "write")


class Metrics(Collector):
    """All metrics of one API process; counters start at 0 when it starts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: JobStore | None = None
        self._lock = threading.Lock()
        self._since = time.time()
        self._counted: dict[str, float] = {}
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._known: dict[tuple[str, str, int], Histogram] = {}
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        self._requests = Histogram(
            "apsp_http_request_duration_seconds", "Seconds from the request to the end of its answer.",
            ("method", "route", "status"), buckets=_REQUEST_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._waits = Histogram(
            "apsp_job_queue_wait_seconds", "Seconds from the acceptance of a job to its first start.",
            buckets=_JOB_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._runs = Histogram(
            "apsp_job_run_seconds", "Seconds from the last start of a job to its end.",
            ("algorithm", "device", "status"), buckets=_JOB_BUCKETS, registry=self.registry,
        )  # fmt: skip

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request.

        Args:
            method: HTTP method.
            route: pattern of the request's path; empty if no route matched.
            status: HTTP status of the answer.
            seconds: from the request to the end of its answer.
        """
        key = (method if method in _METHODS else "other", route or "none", status)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._requests.labels(*map(str, key))
        found.observe(seconds)

    def start(self, jobs: JobStore) -> None:
        """Serve metrics on the port of the settings; a failure is logged and does not stop the service."""
        self._jobs = jobs
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port == 0:
            return
        try:
            self._server = start_http_server(port, host, self.registry)
        except OSError as error:
            log.error("there are no metrics: cannot listen on %s:%d: %s", host, port, error.strerror or error)
        else:
            log.info("metrics are on http://%s:%d/metrics", host, port)

    def stop(self) -> None:
        """Stop serving metrics."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()

    def describe(self) -> list[Metric]:
        """Return nothing, because registration must not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are read on each scrape."""
        yield _gauge("apsp_build_info", "The version of the software.", {(VERSION,): 1}, ("version",))
        free = shutil.disk_usage(self._settings.data_dir).free
        yield _gauge("apsp_store_free_bytes", "Bytes that are free where results are kept.", {(): free})
        reachable = 0
        if self._jobs is not None:
            try:
                counts, runners = self._jobs.counts(), self._jobs.list_runners()
                running = self._jobs.running()
                with self._lock:
                    self._count_ended(self._jobs)
                reachable = 1
            except StorageFailed as error:
                log.warning("metrics from the database are missing: %s", error)
        yield _gauge("apsp_database_up", "Whether the job database can be read.", {(): reachable})
        if reachable:
            by_state: dict[tuple[str, ...], float] = {(state,): count for state, count in counts.items()}
            yield _gauge("apsp_jobs", "Jobs that are known, by status.", by_state, ("status",))
            yield from self._of_runners(runners)
            yield self._checkpoints(running)

    def _count_ended(self, jobs: JobStore) -> None:
        """Count the jobs that have ended since the last scrape, each once."""
        now = time.time()
        for record in jobs.ended_since(self._since - _OVERLAP):
            finished = record.finished or now
            if record.id in self._counted or finished < self._since - _OVERLAP:
                continue
            self._counted[record.id] = finished
            if record.started is None:
                continue
            if record.attempt == 1 and not record.history:
                self._waits.observe(max(0.0, record.started - record.created))
            algorithm, device = str(record.plan.get("algorithm")), str(record.plan.get("device"))
            self._runs.labels(algorithm, device, record.state).observe(max(0.0, finished - record.started))
        self._since = now
        self._counted = {job: at for job, at in self._counted.items() if at >= now - 2 * _OVERLAP}

    def _of_runners(self, runners: list[RunnerRecord]) -> Iterator[Metric]:
        alive = [runner for runner in runners if not silent(runner, self._settings)]
        healthy: dict[tuple[str, ...], float] = {(r.slot, r.device): float(r.state != "sick") for r in alive}
        yield _gauge("apsp_device_healthy", "Whether a runner's device computes.", healthy, ("runner", "device"))
        for name, member, text in (
            ("apsp_device_memory_used_bytes", "used", "Memory in use, on the GPU or by the runner."),
            ("apsp_device_memory_limit_bytes", "limit", "Memory that there is, on the GPU or for the runner."),
        ):
            found: dict[tuple[str, ...], float] = {}
            for runner in alive:
                value = _metrics_of(runner, "memory").get(member)
                if value is not None:
                    found[runner.slot, runner.device] = value
            yield _gauge(name, text, found, ("runner", "device"))
        tiles = SummaryMetricFamily(
            "apsp_tile_seconds", "Seconds of tiles, batches and rounds, by phase.", labels=("runner", "phase")
        )
        moved = CounterMetricFamily(
            "apsp_io_bytes", "Bytes that runners moved, by tier and direction.", labels=("runner", "tier", "direction")
        )
        for runner in alive:
            for phase, (count, seconds) in sorted(_metrics_of(runner, "phases").items()):
                tiles.add_metric((runner.slot, phase), count, seconds)
            for tier, directions in sorted(_metrics_of(runner, "bytes").items()):
                for direction in _DIRECTIONS:
                    moved.add_metric((runner.slot, tier, direction), directions.get(direction, 0))
        yield tiles
        yield moved

    def _checkpoints(self, running: list[JobRecord]) -> Metric:
        """Return the seconds since a running job's last checkpoint, or since its start where there is none yet."""
        now, found = time.time(), dict[tuple[str, ...], float]()
        for record in running:
            since = (
                checkpoint_time(self._settings.store(record.id), self._settings.address(record.id)) or record.started
            )
            slot = (record.runner or "").rpartition(":")[0]
            if since is not None:
                found[(slot,)] = max(0.0, now - since)
        text = "Seconds of work that would be lost with a runner: since the last checkpoint of its job, or its start."
        return _gauge("apsp_checkpoint_age_seconds", text, found, ("runner",))


def _metrics_of(runner: RunnerRecord, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (runner.figures or {}).get(name) or {}
    return found


def _gauge(
    name: str, text: str, values: dict[tuple[str, ...], float], labels: tuple[str, ...] = ()
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
