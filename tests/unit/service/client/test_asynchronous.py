"""The waiting client and the one that does not wait are the same but for waiting."""

from __future__ import annotations

import inspect

import pytest

from service.client import AsyncClient, AsyncJob, AsyncResult, Client, Job, Result


def public(kind: type) -> dict[str, inspect.Signature]:
    names = [name for name, value in inspect.getmembers(kind) if callable(value) and not name.startswith("_")]
    return {name: inspect.signature(getattr(kind, name)) for name in names}


@pytest.mark.parametrize(("plain", "twin"), [(Client, AsyncClient), (Job, AsyncJob), (Result, AsyncResult)])
def test_the_twins_have_the_same_methods_with_the_same_arguments(plain, twin):
    ours, theirs = public(plain), public(twin)
    assert ours.keys() == theirs.keys()
    for name, signature in ours.items():
        found = theirs[name]
        assert [p.replace(annotation="") for p in signature.parameters.values()] == [
            p.replace(annotation="") for p in found.parameters.values()
        ], name
        assert str(found.return_annotation).replace("Async", "") == str(signature.return_annotation), name
        shared = getattr(plain, name) is getattr(twin, name)
        assert shared or inspect.iscoroutinefunction(getattr(twin, name)), name


@pytest.mark.parametrize("kind", [Client, Job, Result])
def test_every_method_says_what_it_does(kind):
    assert all(inspect.getdoc(getattr(kind, name)) for name in public(kind))
