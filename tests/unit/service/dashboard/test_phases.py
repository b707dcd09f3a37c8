"""Every phase that a solve or a plan can name has words that people read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from service.dashboard.phases import phase_word

ROOT = Path(__file__).resolve().parents[4]


def named_phases() -> Iterator[str]:
    """Return the names that stand in calls of ``begin`` and ``Phase`` in the engine."""
    for path in sorted((ROOT / "engine").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"begin", "Phase"} and isinstance(node.args[0].value, str):
                yield node.args[0].value


def test_every_phase_has_words() -> None:
    """A page showed ``prepare backward`` and ``read tables``, as programs call them."""
    found = set(named_phases())
    assert {"prepare backward", "relax", "read tables"} <= found
    assert sorted(name for name in found if phase_word(name) == name) == []
