"""Archives of kernels that were compiled ahead: found by content, and never run when damaged.  No GPU is needed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.devices.cuda.code import kernel_set, prebuilt
from engine.devices.cuda.code.kernel_set import ARITHMETICS, KERNELS, forms
from engine.devices.cuda.code.prebuilt import (
    ARCHITECTURES,
    PTX,
    Module,
    all_modules,
    architectures_of,
    find,
    write_archive,
)

TELL = Module("tell", ARITHMETICS["int32", False])
RELAX = Module("relax", ARITHMETICS["float32", False])
CODE = bytes(range(256)) * 4


def _archive(folder: Path, codes: dict[Module, bytes], architecture: str = "sm_90") -> Path:
    path = folder / f"{architecture}.zip"
    keys = {module.key(architecture): code for module, code in codes.items()}
    write_archive(path, keys, made_by="a test")
    return path


@pytest.mark.parametrize(
    ("capability", "architectures"),
    [
        ((6, 1), []),
        ((7, 0), ["sm_70"]),
        ((7, 2), ["sm_70"]),
        ((7, 5), ["sm_75", "sm_70"]),
        ((8, 0), ["sm_80"]),
        ((8, 7), ["sm_86", "sm_80"]),
        ((8, 9), ["sm_89", "sm_86", "sm_80"]),
        ((9, 0), ["sm_90"]),
        ((10, 0), ["sm_100"]),
        ((10, 3), ["sm_100", PTX]),
        ((12, 0), [PTX]),
    ],
)
def test_a_chip_runs_code_of_its_own_major_version_and_later_ones_run_ptx(
    capability: tuple[int, int], architectures: list[str]
) -> None:
    assert list(architectures_of(capability)) == architectures
    assert set(architectures) <= set(ARCHITECTURES)


def test_every_form_has_its_module_and_kernels_of_one_compilation_share_it() -> None:
    keys = {module.key("sm_90") for module in all_modules()}
    asked = [Module(*form).key("sm_90") for form in forms()]
    assert keys == set(asked)
    assert len(keys) == len(all_modules()) < len(asked)
    one = ARITHMETICS["int32", False]
    assert Module("pack", one).key("sm_90") == Module("mirror", one).key("sm_90")


@pytest.mark.parametrize("entry", KERNELS)
def test_a_kernel_is_asked_for_with_some_arithmetic(entry: str) -> None:
    assert entry in {name for name, _ in forms()}


def test_the_key_follows_from_source_headers_options_and_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [
        RELAX.key("sm_90"),
        RELAX.key("sm_80"),
        Module("relax", ARITHMETICS["float32", True]).key("sm_90"),
        Module("pack", ARITHMETICS["float32", False]).key("sm_90"),
    ]
    monkeypatch.setattr(prebuilt, "source", lambda kernel: kernel_set.source(kernel) + "\n")
    keys.append(RELAX.key("sm_90"))
    assert len(set(keys)) == len(keys)


def test_what_was_written_is_found_and_what_was_not_is_absent(tmp_path: Path) -> None:
    _archive(tmp_path, {TELL: CODE, RELAX: CODE[::-1]})
    assert find(TELL, (9, 0), tmp_path) == ("sm_90", CODE)
    assert find(RELAX, (9, 0), tmp_path) == ("sm_90", CODE[::-1])
    assert find(Module("relax", ARITHMETICS["float64", False]), (9, 0), tmp_path) is None
    assert find(TELL, (8, 0), tmp_path) is None


def test_an_older_minor_version_serves_where_the_own_one_lacks_the_module(tmp_path: Path) -> None:
    _archive(tmp_path, {TELL: CODE}, "sm_80")
    _archive(tmp_path, {RELAX: CODE}, "sm_86")
    assert find(TELL, (8, 6), tmp_path) == ("sm_80", CODE)
    assert find(RELAX, (8, 6), tmp_path) == ("sm_86", CODE)


def test_code_of_another_source_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _archive(tmp_path, {TELL: CODE})
    monkeypatch.setattr(prebuilt, "source", lambda kernel: kernel_set.source(kernel) + "// changed\n")
    assert find(TELL, (9, 0), tmp_path) is None


def test_the_same_codes_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = _archive(tmp_path / "a", {TELL: CODE, RELAX: b"x"})
    second = _archive(tmp_path / "b", {RELAX: b"x", TELL: CODE})
    assert first.read_bytes() == second.read_bytes()


@settings(deadline=None)
@given(st.data())
def test_damage_anywhere_gives_the_right_code_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = _archive(folder, {TELL: CODE, RELAX: CODE[:100]})
    held = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(held) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "zeros"]))
    if change == "flip":
        held[at] ^= 1 << data.draw(st.integers(0, 7))
    elif change == "cut":
        del held[at:]
    else:
        held[at : at + 40] = bytes(len(held[at : at + 40]))
    path.write_bytes(held)
    prebuilt._Archive.at.cache_clear()
    assert find(TELL, (9, 0), folder) in (None, ("sm_90", CODE))
    assert find(RELAX, (9, 0), folder) in (None, ("sm_90", CODE[:100]))


@pytest.mark.parametrize("at", ["code", "digest"])
def test_a_changed_member_with_a_right_checksum_of_the_zip_file_is_told(
    tmp_path: Path, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = _archive(tmp_path, {TELL: CODE})
    with zipfile.ZipFile(path) as archive:
        data = bytearray(archive.read(TELL.key("sm_90")))
    data[0 if at == "digest" else -1] ^= 1
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(TELL.key("sm_90"), bytes(data))
    prebuilt._Archive.at.cache_clear()
    assert find(TELL, (9, 0), tmp_path) is None
    assert "its digest does not match" in caplog.text


def test_code_under_the_name_of_another_kernel_is_told(tmp_path: Path) -> None:
    path = _archive(tmp_path, {TELL: CODE})
    with zipfile.ZipFile(path) as archive:
        data = archive.read(TELL.key("sm_90"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(RELAX.key("sm_90"), data)
    prebuilt._Archive.at.cache_clear()
    assert find(RELAX, (9, 0), tmp_path) is None


def test_a_file_that_is_no_archive_holds_nothing_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sm_90.zip").write_bytes(b"not a zip file")
    prebuilt._Archive.at.cache_clear()
    assert find(TELL, (9, 0), tmp_path) is None
    assert "cannot be read" in caplog.text
