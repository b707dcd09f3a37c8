"""Traces, where somebody collects them: a span for each request, in the client's trace, without keys.

In a process of its own: what collects traces is set once for a whole process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from service.settings import Settings
from tests.integration.service_process import ROOT
from tests.unit.service.support import Bench, small_graph

TRACE = "0af7651916cd43dd8448eb211c80319c"

#: a collector of the few members that are looked at, and the questions
CODE = """
import json, sys
from contextlib import contextmanager
from fastapi.testclient import TestClient
from opentelemetry import trace
from service.app import create_app
from service.settings import Settings

class Span(trace.NonRecordingSpan):
    def __init__(self, name, context, attributes):
        super().__init__(context)
        self.name, self.attributes = name, dict(attributes or {})
    def is_recording(self): return True
    def update_name(self, name): self.name = name
    def set_attribute(self, key, value): self.attributes[key] = value
    def set_attributes(self, found): self.attributes.update(found)

class Tracer(trace.NoOpTracer):
    def start_span(self, name, context=None, kind=None, attributes=None, **_):
        parent = trace.get_current_span(context).get_span_context()
        inner = trace.SpanContext(parent.trace_id or 1, 7, False)
        spans.append((kind, Span(name, inner, attributes)))
        return spans[-1][1]
    @contextmanager
    def start_as_current_span(self, name, context=None, **more):
        with trace.use_span(self.start_span(name, context, **more)) as span:
            yield span

class Provider(trace.TracerProvider):
    def get_tracer(self, *_, **__): return Tracer()

spans = []
trace.set_tracer_provider(Provider())
with TestClient(create_app(Settings.load())) as client:
    for method, url, headers in json.loads(sys.argv[1]):
        client.request(method, url, headers=headers)
print(json.dumps([(span.name, hex(span.get_span_context().trace_id), span.attributes)
                  for kind, span in spans if kind == trace.SpanKind.SERVER]))
"""


def test_each_request_is_a_span_of_the_clients_trace(settings: Settings, bench: Bench):
    job, _ = bench.solved(small_graph(), "int32")
    asked = f"/v1/jobs/{job}/distance?source=10&target=30"
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "Authorization": "Bearer apsp_abcdefgh_secret"}
    # the second takes the short way
    questions = [("GET", asked, headers), ("GET", asked, headers), ("POST", f"/v1/jobs/{job}/cancel", headers)]
    questions.append(("GET", "/v1/jobs/nobody", {"Authorization": "Bearer apsp_abcdefgh_secret"}))
    environment = {**os.environ, **settings.environment()}
    command = [sys.executable, "-c", CODE, json.dumps(questions)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    spans = json.loads(done.stdout)
    pattern = "/v1/jobs/{job_id}"
    assert [(name, trace) for name, trace, _ in spans[:3]] == [
        (f"GET {pattern}/distance", hex(int(TRACE, 16))), (f"GET {pattern}/distance", hex(int(TRACE, 16))),
        (f"POST {pattern}/cancel", hex(int(TRACE, 16))),
    ]  # fmt: skip
    assert [(facts["http.route"], facts["http.response.status_code"]) for _, _, facts in spans] == [
        (f"{pattern}/distance", 200), (f"{pattern}/distance", 200), (f"{pattern}/cancel", 200), (pattern, 404),
    ]  # fmt: skip
    assert spans[3][1] == "0x1"
    assert "secret" not in done.stdout


def test_nothing_that_sends_traces_is_needed():
    """What collects is an extra; the service imports none of it."""
    code = "import service.app, sys; sys.exit('opentelemetry.sdk' in sys.modules or 'requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "FASTAPI_OTEL_AUTO_CONFIGURE"])
def test_the_settings_are_documented(name: str):
    assert name in (ROOT / "docs" / "operations.md").read_text()
