from __future__ import annotations

import pytest

import storage.errors
from service.api.fault import Fault, NoResult, NotAcceptable, Refused, ResultNotReady, fault_of
from service.api.problems import CODES, document, status_of
from storage.errors import ApspError


def test_every_error_class_has_a_status():
    classes = [c for c in vars(storage.errors).values() if isinstance(c, type) and issubclass(c, ApspError)]
    kinds = {c.kind for c in [*classes, NoResult, NotAcceptable, ResultNotReady]}
    assert len(kinds) >= 10
    assert kinds <= set(CODES)


@pytest.mark.parametrize(
    ("error", "code", "details"),
    [
        (storage.errors.InvalidGraph("bad", line=3, field="weight"), "invalid-graph", {"line": 3, "field": "weight"}),
        (Refused(Fault("negative-cycle", "m", {"cycle": [1]})), "negative-cycle", {"cycle": [1]}),
        (ResultNotReady("wait", state="running", retry_after=1), "result-not-ready", {"state": "running"}),
        (MemoryError(), "out-of-memory", {}),
        *(
            (
                storage.errors.DoesNotFit("no", resource=resource, needed=2, available=1),
                "does-not-fit",
                {"resource": resource, "needed": 2, "available": 1, **setting},
            )
            for resource, setting in (
                ("memory", {"setting": "APSP_MEMORY"}),
                ("disk", {"setting": "APSP_DATA_DIR"}),
                ("device memory", {}),
            )
        ),
        (
            storage.errors.DoesNotFit("no", resource="memory", needed=2, available=1, remedies=[{"budgets": []}]),
            "does-not-fit",
            {
                "resource": "memory",
                "needed": 2,
                "available": 1,
                "remedies": [{"budgets": []}],
                "setting": "APSP_MEMORY",
            },
        ),
        (ZeroDivisionError("division"), "internal", {}),
    ],
)
def test_faults(error: Exception, code: str, details: dict):
    fault = fault_of(error)
    assert (fault.code, fault.details) == (code, details)
    assert Fault(**fault.to_dict()) == fault
    assert fault.message


def test_documents():
    body = document(Fault("does-not-fit", "no room", {"needed": 2}), instance="/v1/jobs")
    assert body == {
        "type": "urn:apsp:problem:does-not-fit", "title": "The job does not fit", "status": 507, "detail": "no room",
        "code": "does-not-fit", "details": {"needed": 2}, "instance": "/v1/jobs",
    }  # fmt: skip
    assert status_of("something new") == 500
