from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import DoesNotFit
from storage.graph.uploads import Uploads


@pytest.mark.parametrize(
    ("filename", "ending"),
    [
        ("roads.gr.gz", ".gr.gz"), ("a.b.c.csv", ".c.csv"), (None, ""), ("plain", ""), ("../../etc/x.mtx", ".mtx"),
        ("x.a/b.csv", ".csv"), ("x." + "y" * 50, ""), ("x.g\0z", ""), ("x.sh;rm", ""),
    ],
)  # fmt: skip
def test_names_keep_harmless_endings_only(tmp_path: Path, filename: str | None, ending: str):
    path = Uploads(tmp_path).create(filename, None)
    assert path.parent == tmp_path / "incoming"
    assert "".join(path.suffixes) == ending
    assert path.read_bytes() == b""


def test_what_cannot_fit_is_refused_before_it_is_sent(tmp_path: Path):
    uploads = Uploads(tmp_path)
    with pytest.raises(DoesNotFit) as caught:
        uploads.create("x.gr", 2**62)
    assert caught.value.details()["needed"] == 2**62
    uploads.create("x.gr", 10)
    assert len(list((tmp_path / "incoming").iterdir())) == 1
    uploads.clear()
    assert list((tmp_path / "incoming").iterdir()) == []
