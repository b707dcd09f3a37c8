"""The time of a command that ended with a fault is not taken for the time of its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.start import took


@pytest.mark.parametrize(("code", "counts"), [(0, True), (2, True), (1, False), (3, False)])
def test_a_fault_has_no_time(tmp_path: Path, code: int, counts: bool) -> None:
    (tmp_path / "service" / "cli").mkdir(parents=True)
    (tmp_path / "service" / "__init__.py").write_text("")
    (tmp_path / "service" / "cli" / "__init__.py").write_text(f"def main():\n    raise SystemExit({code})\n")
    if counts:
        assert min(took(["solve"], tmp_path)) > 0
        return
    with pytest.raises(RuntimeError, match=f"solve ended with {code}"):
        took(["solve"], tmp_path)
