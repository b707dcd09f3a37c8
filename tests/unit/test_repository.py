"""The repository holds what it promises: documents, locks, packages, import rules."""

import ast
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from packaging.requirements import Requirement
from packaging.version import Version

from service.cli import main

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = [ROOT / "requirements.lock", ROOT / "benchmarks" / "requirements.lock"]
IMAGE_LOCKS = sorted((ROOT / "deploy" / "locks").glob("*.lock"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
COMMANDS = {command.name or command.callback.__name__ for command in main.app.registered_commands} | {
    str(group.name) for group in main.app.registered_groups
}


def pins(lock: Path) -> dict[str, set[Version]]:
    found: dict[str, set[Version]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, set()).add(Version(version))
    return found


def test_the_documents_name_every_command_and_no_other():
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {name for name in COMMANDS if f"`apsp {name}" in operations} == COMMANDS
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text))
        assert set(re.findall(r"^\s*(?:\$ )?apsp ([a-z][a-z-]*)", blocks, re.MULTILINE)) <= COMMANDS, document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_document_names_exist(document):
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text)
    named += re.findall(r"`((?:docs|deploy|examples|service|engine|storage|tests|benchmarks)/[\w./-]+\.\w+)`", text)
    missing = [name for name in named if not ((document.parent / name).exists() or (ROOT / name).exists())]
    assert missing == []


@pytest.mark.parametrize("lock", [*LOCKS, *IMAGE_LOCKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_locks_pin_everything_with_hashes_and_name_no_host(lock):
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "index" not in re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE))
    assert len(entries) > (20 if lock in LOCKS else 0)
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\\n    --hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_lock_holds_what_the_project_asks_for():
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    own = [name for name in extras["dev"] if name.startswith("apsp[")]
    assert own == ["apsp[service]"]
    wanted = project["dependencies"] + extras["service"] + [name for name in extras["dev"] if name not in own]
    check_pins(wanted, pins(LOCKS[0]))
    check_pins(wanted + project["optional-dependencies"]["bench"], pins(LOCKS[1]))


def check_pins(wanted: list[str], pinned: dict[str, set[Version]]) -> None:
    for requirement in map(Requirement, wanted):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert pinned.get(name), f"{name} is not locked; run ./dev lock"
        assert all(version in requirement.specifier for version in pinned[name]), requirement


def test_both_locks_agree():
    first, second = map(pins, LOCKS)
    assert {name: second.get(name) for name in first} == first


def test_the_image_holds_the_versions_that_the_tests_run_with():
    tested, run = pins(LOCKS[0]), pins(ROOT / "deploy" / "locks" / "run.lock")
    assert {name: tested.get(name) for name in run} == run
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["project"]["dependencies"] + extras["service"] + extras["s3"] + extras["dask"]
    check_pins(wanted, run)
    compiler = pins(ROOT / "deploy" / "locks" / "kernels.lock")
    assert compiler == {"nvidia-cuda-nvrtc-cu12": tested["nvidia-cuda-nvrtc-cu12"]}
    assert len(IMAGE_LOCKS) == 4


def test_every_package_is_in_the_image_and_checked():
    tools = PROJECT["tool"]
    packages = {name.rstrip("*") for name in tools["setuptools"]["packages"]["find"]["include"]}
    assert packages == {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert {name for name in packages if f"\nCOPY {name}/ {name}/\n" in dockerfile} == packages
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in packages} <= {*kept}
    assert {*tools["importlinter"]["root_packages"]} == packages
    assert {*tools["mypy"]["packages"]} == packages | {"benchmarks"}
    assert [name for name in packages if not (ROOT / name / "py.typed").is_file()] == []


def test_the_script_needs_only_the_standard_library():
    tree = ast.parse((ROOT / "dev").read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    used = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    assert used <= sys.stdlib_module_names


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_scripts_are_executable(script):
    assert (ROOT / script).stat().st_mode & 0o111 == 0o111


NAMES = ("setup", "demo", "test", "gpu-tests", "check", "kernels", "docs", "lock")


def test_the_script_says_what_it_can_do_and_refuses_the_rest():
    said = subprocess.run([sys.executable, ROOT / "dev", "--help"], capture_output=True, text=True, check=True)
    assert all(f"./dev {name}" in said.stdout for name in NAMES)
    wrong = subprocess.run([sys.executable, ROOT / "dev", "frobnicate"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "frobnicate" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def script_whose_commands_are_noted(monkeypatch, status=0):
    script, calls = SourceFileLoader("dev", str(ROOT / "dev")), list[list[str]]()
    dev = module_from_spec(spec_from_loader("dev", script))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    script.exec_module(dev)
    dev.its_setup = dev.setup
    monkeypatch.setattr(dev, "setup", lambda **_: None)
    ended = subprocess.CompletedProcess([], status)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: calls.append(words) or ended)
    return dev, calls


@pytest.mark.parametrize(("compiled", "status"), [(False, 0), (True, 0), (True, 1)])
def test_kernels_are_compiled_once_and_only_where_they_are_asked_for(monkeypatch, tmp_path, compiled, status):
    dev, calls = script_whose_commands_are_noted(monkeypatch, status)
    monkeypatch.setattr(dev, "VENV", tmp_path)
    monkeypatch.setattr(dev, "PYTHON", tmp_path / "python")
    monkeypatch.setattr(dev.shutil, "which", lambda _: None)
    (tmp_path / "python").touch()
    (tmp_path / ".apsp-setup").write_text(dev.state(dev.LOCK))
    for _ in range(2):
        dev.its_setup(compiled=compiled)
    warmed = [dev.BIN / "apsp", "warm"]
    # A failed compilation is tried again by the next command.
    assert calls == ([] if not compiled else [warmed] if status == 0 else [warmed, warmed])


@pytest.mark.parametrize("kept", [False, True])
def test_modules_are_compiled_ahead_where_imports_keep_nothing(monkeypatch, tmp_path, kept):
    dev, _ = script_whose_commands_are_noted(monkeypatch)
    installed = []
    monkeypatch.setattr(dev, "VENV", tmp_path)
    monkeypatch.setattr(dev, "make_venv", lambda: None)
    monkeypatch.setattr(dev, "install_uv", lambda: None)
    monkeypatch.setattr(dev, "run_uv", lambda *words: installed.append(words))
    monkeypatch.setattr(dev.shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", not kept)
    dev.its_setup()
    assert ("--compile-bytecode" in installed[0]) != kept
    assert installed[0][-2:] == ("-r", dev.LOCK)


def test_the_demo_waits_for_its_own_kernels_only(monkeypatch):
    dev, _ = script_whose_commands_are_noted(monkeypatch)
    asked = []
    monkeypatch.setattr(dev, "setup", lambda **options: asked.append(options))
    noted_beside(monkeypatch, dev, 0)
    dev.demo()
    dev.test([])
    assert asked == [{}, {"compiled": True}]


def test_gpu_tests_wait_for_no_compiler_and_lose_no_failure(monkeypatch, tmp_path):
    dev, calls = script_whose_commands_are_noted(monkeypatch)
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    assert dev.gpu_tests(["-k", "stream"]) == 0
    looked, warmed, words = calls
    assert looked[1:] == ["-c", dev.NO_GPU]
    assert warmed == [dev.BIN / "apsp", "warm", "--device", "cuda"]
    assert words[words.index("--told") + 1] == str(tmp_path / "build" / "gpu-tests")
    assert words[-3:] == ["-k", "stream", "tests/gpu"]
    pytest_itself = pytest.Config.fromdictargs({}, words[3:])  # takes them all
    assert (pytest_itself.option.markexpr, pytest_itself.option.keyword) == ("gpu", "stream")


def test_where_there_is_no_gpu_nothing_is_skipped_in_silence(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text("import a_part_that_is_not_there\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    dev, calls = script_whose_commands_are_noted(monkeypatch, status=1)
    with pytest.raises(SystemExit, match="would all be skipped"):
        dev.gpu_tests([])
    assert len(calls) == 1
    monkeypatch.undo()
    command = [sys.executable, "-c", dev.NO_GPU]
    looked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert looked.returncode == 1
    assert "a_part_that_is_not_there" in looked.stderr


@pytest.mark.parametrize(
    ("arguments", "marks"),
    [
        ([], "not gpu and not long and not slow"),
        (["--all"], "not gpu and not long"),
        (["--long"], "not gpu and long"),
        (["tests/faults"], "not long"),
        (["--long", "tests/faults"], "long"),
        (["tests/faults/test_chains.py::test_chains"], None),
        (["tests", "-m", "slow"], "slow"),
    ],
)
def test_campaigns_run_only_when_they_are_asked_for(monkeypatch, arguments, marks):
    dev, calls = script_whose_commands_are_noted(monkeypatch)
    besides = noted_beside(monkeypatch, dev, 0)
    assert dev.test(arguments) == 0
    found = [chosen(call) for call in calls]
    whole = [f"{marks} and not alone and not beside", f"{marks} and alone"]
    assert found == (whole if len(calls) == 2 else [marks])
    assert [chosen(call) for call in besides] == [f"{marks} and beside"] * (len(calls) - 1)


def chosen(call):
    given = list(map(str, call))[3:]  # after python -m pytest
    return given[given.index("-m") + 1] if "-m" in given else None


def noted_beside(monkeypatch, dev, status):
    """What is started beside the others; it ends with ``status``."""
    calls = []

    class Process:
        returncode = status

        def __init__(self, words, **_):
            calls.append(words)

        def wait(self):
            return status

        def poll(self):
            return status

    monkeypatch.setattr(dev.subprocess, "Popen", Process)
    return calls


@pytest.mark.parametrize(
    ("status", "again"), [(0, "alone"), (5, "alone"), (1, "(alone or beside)"), (-9, "(alone or beside)")]
)
def test_what_fails_beside_the_others_runs_once_more_with_nothing_beside_it(monkeypatch, tmp_path, status, again):
    dev, calls = script_whose_commands_are_noted(monkeypatch)
    monkeypatch.setattr(dev, "BESIDE", tmp_path / "beside")
    (beside,) = [noted_beside(monkeypatch, dev, status), dev.test(["--all"])][:1]
    assert f"cache_dir={tmp_path / 'beside'}" in beside[0]
    assert chosen(calls[1]) == f"not gpu and not long and {again}"
    assert ("tests/deploy/test_image.py" in calls[1]) == ("beside" in again), "nothing was noted, so all of them run"


def own_plugins(monkeypatch):
    """Each pytest that is started loads only the plugin that the script needs; all of them take a second to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")


@pytest.mark.parametrize("failing", [None, "plain", "beside", "alone", "behind one that fails once"])
def test_after_a_failing_test_the_script_fails_with_x_too(monkeypatch, tmp_path, failing):
    start, run = subprocess.Popen, subprocess.run
    dev, _ = script_whose_commands_are_noted(monkeypatch)
    marks = ("plain", "beside", "alone")
    (tmp_path / "tests").mkdir()
    for mark in marks:
        once = mark == "beside" and failing not in (None, *marks)
        fails = f"p = pathlib.Path({str(tmp_path / 'once')!r}); there = p.exists(); p.touch(); assert there"
        lines = ["import pathlib", "import pytest", f"pytestmark = pytest.mark.{mark}"]
        lines += [
            f"def test_first(): {fails if once else 'pass'}",
            f"def test_second(): assert {mark != failing and not once}",
        ]
        (tmp_path / "tests" / f"test_{mark}.py").write_text("\n".join(lines))
    known = "\n".join((*marks, "gpu", "long", "slow"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{textwrap.indent(known, '  ')}\n")
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "BESIDE", tmp_path / "beside")
    monkeypatch.setattr(dev, "PYTHON", sys.executable)
    monkeypatch.setattr(dev.os, "cpu_count", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(subprocess, "Popen", start)
    own_plugins(monkeypatch)
    assert (dev.test(["-x"]) != 0) == (failing is not None)


@pytest.mark.parametrize(("broken", "again"), [(False, ["test_it.py::test_bad"]), (True, [])])
def test_of_what_runs_beside_the_others_only_what_failed_runs_once_more(monkeypatch, tmp_path, broken, again):
    """pytest notes it where it is told to; where a file could not be read, no test ran, and all of them run again."""
    start = subprocess.Popen
    dev, calls = script_whose_commands_are_noted(monkeypatch)
    own_plugins(monkeypatch)
    monkeypatch.setattr(dev, "BESIDE", tmp_path / "beside")
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    if broken:
        (tmp_path / "test_that.py").write_text("import a_part_that_is_not_there\n")

    class Process:
        def __init__(self, words, **_):
            assert words[1:4] == ["-m", "pytest", "-o"]
            own = [*words[:5], "-c", os.devnull, "--rootdir", tmp_path, tmp_path]
            self.returncode = start(own, cwd=tmp_path, stdout=subprocess.DEVNULL).wait()

        def wait(self):
            return self.returncode

        poll = wait

    monkeypatch.setattr(dev.subprocess, "Popen", Process)
    dev.test(["--all"])
    assert chosen(calls[1]) == "not gpu and not long and (alone or beside)"
    assert [word for word in calls[1] if "test_it" in word] == again
    assert ("tests/deploy/test_image.py" in calls[1]) == broken


def test_passes_of_few_tests_read_the_files_that_have_them(monkeypatch):
    dev, calls = script_whose_commands_are_noted(monkeypatch)
    besides = noted_beside(monkeypatch, dev, 0)
    dev.test(["--all"])
    together, alone = calls
    assert not [word for word in map(str, together) if word.startswith("tests")]
    assert "tests/unit/service/test_app.py" in alone
    assert {"tests/deploy/test_image.py", "tests/integration/test_dask.py"} <= {*besides[0]}
    assert all((ROOT / word).is_file() for word in (*alone, *besides[0]) if str(word).startswith("tests"))


def test_marks_of_the_passes_are_given_in_files_of_tests_only():
    """``./dev test`` looks for them there; given elsewhere, or under another name, a test would run in no pass."""
    for file in (ROOT / "tests").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "add_" + "marker" not in text, file
        assert "pytest import " + "mark" not in text, file
        if not file.name.startswith("test_"):
            assert re.search(r"mark\.(alone|beside)", text) is None, file


def test_no_drawn_case_has_a_deadline():
    """On a busy machine any case may take long; lists of checks replace that of tests/conftest.py."""
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    texts = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    lists = [
        (name, found) for name, text in texts.items() for found in re.findall(r"health_check\S*[=:] ?\[.*?\]", text)
    ]
    assert [(name, found) for name, found in lists if "too_slow" not in found] == []
    assert [name for name, text in texts.items() if re.search(r"deadline=\d", text)] == []


def test_every_example_has_its_licence_noted():
    notes = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / "examples").iterdir() if path.is_file() and path.name != "README.md"]
    assert [name for name in files if f"`{name}`" not in notes] == []


def test_import_rules_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 kept" not in done.stdout
