"""``warm`` compiles what is missing, says so, and tells why where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import engine.graph.kernels
from engine.api import warming
from engine.devices.cuda import context
from engine.execution.kernel_list import ListedKernel
from engine.model import progress
from engine.model.progress import Monitor
from storage.errors import Cancelled, InvalidRequest, SolveFailed
from tests.unit.engine.execution.test_compiling import MODULE, Told

NEW = """
import sys
sys.path[:0] = [{folder!r}]
from engine.api import warming
from engine.execution.kernel_list import ListedKernel
names = (("add", '["int64", "int64"]'), ("double", '["int8"]'))
listed = [ListedKernel("ahead", name, types, 1.0, ()) for name, types in names]
warming.listed_kernels = lambda: listed
found = warming.warm(processes=2)
print(found.kernels, found.compiled)
"""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ListedKernel]:
    name = f"ahead_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    # kernels of files newer than this are not kept
    monkeypatch.setattr(engine.graph.kernels, "_BEGUN", time.time() + 60)
    kernels = [ListedKernel(name, "add", f'["{kind}", "{kind}"]', 1.0, ()) for kind in ("int64", "float32")]
    monkeypatch.setattr(warming, "listed_kernels", lambda: kernels)
    return kernels


def test_it_compiles_once_and_tells_of_it(listed: list[ListedKernel]) -> None:
    told = Told()
    assert warming.warm(processes=2, nice=1, monitor=told) == warming.Warmed(2, 2)
    assert (told.phases, told.done) == ([("compile", 2, "kernels")], 2)
    again = Told()
    assert warming.warm(monitor=again) == warming.Warmed(2, 0)
    assert again.phases == []


def test_a_new_process_finds_what_was_compiled(tmp_path: Path) -> None:
    (tmp_path / "ahead.py").write_text(MODULE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for said in ("2 2", "2 0"):
        command = [sys.executable, "-c", NEW.format(folder=str(tmp_path))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (done.stdout.strip(), done.stderr) == (said, "")


def test_it_says_what_cannot_be_compiled(listed: list[ListedKernel]) -> None:
    listed.append(ListedKernel(listed[0].module, "wrong", '["int64"]', 1.0, ()))
    with pytest.raises(
        SolveFailed, match=r"1 of 3 kernels were not compiled; the first is ahead_.*\.wrong: TypingError"
    ):
        warming.warm(processes=1)


def test_it_says_where_nothing_can_be_kept(listed: list[ListedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "compile_kernels", lambda kernels, **options: None)
    with pytest.raises(SolveFailed, match=r"2 kernels were compiled and could not be kept .* NUMBA_CACHE_DIR"):
        warming.warm()


def test_where_no_folder_can_be_written_nothing_is_compiled_in_vain(
    listed: list[ListedKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_KEPT", [False])
    told = Told()
    with pytest.raises(SolveFailed, match=r"2 kernels are not compiled and could not be kept: .* NUMBA_CACHE_DIR"):
        warming.warm(monitor=told)
    assert told.phases == []


def test_it_stops_when_that_is_wanted(listed: list[ListedKernel]) -> None:
    with pytest.raises(Cancelled):
        warming.warm(processes=1, monitor=Told(stop_after=0))


def test_less_than_a_process_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="processes must be at least 1, found 0"):
        warming.warm(processes=0)


def test_a_numba_that_keeps_kernels_its_own_way_has_nothing_to_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "OWN_CACHE", False)
    assert warming.warm(monitor=Monitor()) == warming.Warmed(0, 0)


def test_the_kernels_of_a_gpu_are_made_ready_where_it_is_asked_for(
    listed: list[ListedKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitors: list[object] = []
    monkeypatch.setattr(context, "open_device", lambda: None)
    monkeypatch.setattr(context, "ensure_kernels", lambda *, monitor: monitors.append(monitor) or (60, 4))
    told = Told()
    assert warming.warm(processes=1, device="cuda", monitor=told) == warming.Warmed(2, 2, 60, 4)
    assert monitors == [told]
    assert warming.warm() == warming.Warmed(2, 0)
    assert len(monitors) == 1


def test_without_a_usable_gpu_it_is_refused_before_any_work(
    listed: list[ListedKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise InvalidRequest("no GPU", field="device")

    monkeypatch.setattr(context, "open_device", refuse)
    told = Told()
    with pytest.raises(InvalidRequest, match="no GPU"):
        warming.warm(device="cuda", monitor=told)
    with pytest.raises(InvalidRequest, match="device 'gpu' is unknown; use cpu, cuda"):
        warming.warm(device="gpu", monitor=told)
    assert told.phases == []
