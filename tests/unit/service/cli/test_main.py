"""The command line without solving anything: sizes, progress, numbers, errors as exit codes, bad use."""

import errno
import inspect
import io
import json
import math
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from engine.model.progress import Monitor
from service.cli import main
from service.cli.commands import failures, solving
from service.cli.commands.interrupts import Interrupts
from service.cli.commands.output import emit, jsonable, number, table
from service.cli.progress import ProgressMonitor, amount_text
from service.units import format_about, format_bytes, format_count, format_seconds, parse_size
from storage import errors
from storage.readers.named import NO_DIRECTION


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1000000", 10**6),
        ("500M", 500 * 10**6),
        ("500MB", 500 * 10**6),
        ("4GiB", 4 * 2**30),
        ("4gib", 4 * 2**30),
        ("1.5 KiB", 1536),
        (".5k", 500),
        (" 2T ", 2 * 10**12),
        ("0.1GB", 10**8),
    ],
)
def test_sizes_are_read_exactly(text, size):
    assert parse_size(text, field="--memory") == size


@pytest.mark.parametrize("text", ["", "GiB", "4 gigs", "-1", "1e9", "0", "0.5", "4GiBB", "nan", "9999999P", "٣"])
def test_what_is_no_size_is_refused_by_name(text):
    with pytest.raises(errors.InvalidRequest, match="--memory") as caught:
        parse_size(text, field="--memory")
    assert caught.value.field == "--memory"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (1536 * 2**20, "1.50 GiB"),
        (2**30 - 1, "1.00 GiB"),
        (123 * 2**40, "123 TiB"),
    ],
)
def test_sizes_are_printed_with_three_digits(size, text):
    assert format_bytes(size) == text


def test_counts_and_durations_are_readable():
    assert [format_count(x) for x in (0, 0.25, 99_999, 123_456, 2.5e12)] == ["0", "0.25", "99,999", "123 k", "2.50 T"]
    assert [format_seconds(x) for x in (0.0123, 59.4, 200, 7500)] == ["0.012 s", "59 s", "3 min 20 s", "2 h 5 min"]
    assert [format_about(x) for x in (0.0004, 0.012)] == ["under 1 ms", "about 0.012 s"]
    assert amount_text(2**20, "bytes") == "1.00 MiB"
    assert amount_text(20, "rows") == "20 rows"


def test_progress_lines_tell_fraction_recent_rate_and_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("service.cli.progress.time.perf_counter", lambda: now[0])
    stream = io.StringIO()
    with ProgressMonitor(stream, every=5.0) as monitor:
        monitor.begin("search", 1000, "rows")
        for seconds, rows in ((6.0, 1), (2.0, 49), (3.0, 100), (1.0, 850)):
            now[0] += seconds
            monitor.step(rows)
        monitor.begin("seal", 1, "store")
        now[0] += 1.0
    assert stream.getvalue().splitlines() == [
        "search:   0 %  1 of 1,000 rows, 0.17 rows/s",
        "search:  15 %  150 of 1,000 rows, 30 rows/s, about 29 s left",
        "search: 12 s, 1,000 rows, 83 rows/s",
        "seal: 1 s",
    ]


def test_a_phase_is_never_more_than_done_and_no_time_left_is_negative(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("service.cli.progress.time.perf_counter", lambda: now[0])
    stream = io.StringIO()
    with ProgressMonitor(stream, every=5.0) as monitor:
        monitor.begin("relax", 1000, "updates")
        for updates in (500, 900):
            now[0] += 6.0
            monitor.step(updates)
    assert stream.getvalue().splitlines()[1] == "relax: 100 %  1,000 of 1,000 updates, 83 updates/s, about 0 s left"


def test_a_stop_is_passed_on_and_the_last_line_says_how_far_it_came():
    stream = io.StringIO()
    monitor = ProgressMonitor(stream, lambda: monitor.done >= 20)
    monitor.begin("search", 100, "rows")
    monitor.step(10)
    with pytest.raises(errors.Cancelled), monitor:
        monitor.step(10)
    assert stream.getvalue().startswith("search: stopped after ")
    assert ", 20 rows, " in stream.getvalue()


def test_progress_on_a_terminal_draws_a_bar_with_its_rate():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with ProgressMonitor(stream) as monitor:
        monitor.begin("relax", 10_000_000, "updates")
        monitor.advance(10_000_000)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "relax" in plain
    assert "100%" in plain
    assert "updates/s" in plain


def test_progress_into_a_closed_log_does_not_end_the_job():
    stream = io.StringIO()
    stream.close()
    with ProgressMonitor(stream) as monitor:
        monitor.begin("search", 1, "rows")
        monitor.step(1)
    assert isinstance(monitor, Monitor)


def test_json_is_strict_and_float32_has_no_false_digits():
    value = {
        "a": np.float32(0.1),
        "b": np.int32(7),
        "c": np.array([1, 2], np.uint16),
        "d": math.inf,
        "e": [float("nan"), (1, np.float64(2.5))],
    }
    assert json.loads(json.dumps(jsonable(value), allow_nan=False)) == {
        "a": 0.1,
        "b": 7,
        "c": [1, 2],
        "d": None,
        "e": [None, [1, 2.5]],
    }


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3"), (np.float32(13.869), "13.869"), (7, "7"), (0.5, "0.5"), (math.inf, "inf")]
)
def test_numbers_are_printed_as_they_are(value, text):
    assert number(value) == text


def test_tables_are_aligned_without_trailing_spaces():
    assert table([("a", "1", ""), ("bcd", "20", "x")], right=(1,)) == ["a     1", "bcd  20  x"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidGraph("no", line=3), 2),
        (errors.InvalidRequest("no"), 2),
        (errors.LimitExceeded("no", limit=1, requested=2, setting="x"), 2),
        (errors.NegativeCycle(["a", "b"], -1), 2),
        (errors.NotFound("no"), 2),
        (errors.Conflict("no"), 2),
        (errors.DoesNotFit("no", resource="memory", needed=2, available=1), 3),
        (MemoryError(), 3),
        (errors.StorageFailed("no"), 1),
        (errors.SolveFailed("no"), 1),
        (OSError(28, "No space left on device"), 1),
        (FileNotFoundError(2, "No such file or directory", "x"), 2),
        (ZeroDivisionError("boom"), 1),
    ],
)
def test_every_error_is_one_message_and_an_exit_code(error, code, capsys):
    assert failures.report(error) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("apsp: ")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_every_error_class_has_its_exit_code_on_purpose():
    job_failures = {
        errors.ApspError, errors.StorageFailed, errors.DatabaseFailed, errors.DiskFull, errors.SolveFailed,
        errors.Cancelled,
    }  # fmt: skip
    classes = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ApspError)}
    assert {c for c in classes if failures.exit_code(c.__new__(c)) == failures.FAILED} == job_failures


def test_a_fault_of_ours_shows_its_traceback_only_when_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("APSP_DEBUG", "1")
    failures.report(ZeroDivisionError("boom"))
    assert "Traceback" not in capsys.readouterr().out
    try:
        raise ZeroDivisionError("boom")
    except ZeroDivisionError as error:
        failures.report(error)
    assert "Traceback" in capsys.readouterr().err


@pytest.fixture
def keep_signals():
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may ignore it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for which, handler in before.items():
        signal.signal(which, handler)


def test_a_polite_interrupt_is_remembered_and_a_second_one_raises(keep_signals, capsys):
    interrupts = Interrupts()
    interrupts.install()
    with interrupts.politely():
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.requested()
        assert interrupts.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "stopping" in capsys.readouterr().err
    assert interrupts.exit_code == 130


def test_elsewhere_an_interrupt_raises_at_once(keep_signals):
    interrupts = Interrupts()
    interrupts.install()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert interrupts.exit_code == 143


def test_a_signal_that_the_parent_ignores_stays_ignored(keep_signals):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Interrupts().install()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["slove"], "slove"),
        (["solve", "g.gr"], "--out"),
        (["solve", "g.gr", "--out"], "--out"),
        (["solve", "g.gr", "--out", "s", "--dtype", "int8"], "int8"),
        (["solve", "g.gr", "--out", "s", "--algorithm", "astar"], "astar"),
        (["solve", "g.gr", "--out", "s", "--max-hops", "0"], "max-hops"),
        (["solve", "g.gr", "--out", "s", "--threads", "two"], "threads"),
        (["solve", "g.gr", "--out", "s", "--frobnicate"], "--frobnicate"),
        (["solve", "g.gr", "more.gr", "--out", "s"], "more.gr"),
        (["inspect"], "GRAPH"),
        (["serve", "--port", "70000"], "--port"),
    ],
)
def test_bad_use_is_one_line_that_names_it(arguments, named, capsys, keep_signals):
    assert main.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err
    assert len(err.splitlines()) == 1


def test_closed_standard_streams_are_no_fault(monkeypatch, keep_signals):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main.run(["version"]) == 0
    assert main.run(["nonsense"]) == 2
    sys.stdout.close()
    sys.stderr.close()


def test_standard_output_that_cannot_be_written_is_named(monkeypatch):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(errors.StorageFailed, match="standard output cannot be written: No space left"):
        emit("x")


def test_what_was_decided_for_the_user_is_told_beside_the_plan(tmp_path, capsys, keep_signals):
    graph = tmp_path / "g.txt"
    graph.write_text("1 2 3\n")
    assert main.run(["plan", str(graph), "--device-memory", "4G", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["plan"]["device"] == "cpu"
    assert "--device-memory changes nothing" in err
    assert main.run(["plan", str(graph)]) == 0
    assumed = f"note: {NO_DIRECTION}\n"
    assert capsys.readouterr().err == assumed
    assert main.run(["plan", str(graph), "--directed"]) == 0
    assert capsys.readouterr().err == ""
    graph.write_text("1 2 road\n")
    assert main.run(["plan", str(graph)]) == 0
    notes = "note: no column of weights was found, so every arc weighs 1\nnote: not read: column 3\n"
    assert capsys.readouterr().err == notes + assumed


def test_a_plan_that_does_not_fit_shows_every_candidate(tmp_path, capsys, keep_signals):
    graph = tmp_path / "g.txt"
    graph.write_text("1 2 3\n")
    assert main.run(["plan", str(graph), "--memory", "1M"]) == 3
    out, err = capsys.readouterr()
    assert "dijkstra" in out
    assert "repeated-squaring" in out
    assert "1,000,000" in err
    assert main.run(["plan", str(graph), "--memory", "1M", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["plan"] is None
    assert (said["resource"], said["available"]) == ("memory", 1_000_000)
    assert said["remedies"][0]["budgets"] == [
        {"resource": "memory", "needed": said["needed"], "available": 1_000_000, "option": "memory"}
    ]
    assert "it fits with --memory " in err
    assert all(candidate["rejected"] for candidate in said["candidates"])


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from service.cli import main; code = main.run(['solve', '--help']); "
        "heavy = {'numpy', 'numba', 'polars', 'zarr', 'scipy', 'fastapi', 'rich', 'pydantic', '_hashlib'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(code or f'{heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--max-hops" in done.stdout


HEAVY = {"numba", "polars", "zarr", "numcodecs", "scipy.sparse", "fastapi", "httpx2", "dask", "rich", "sqlalchemy"}
#: What only some solves need: layers of geometry, other semirings, streamed rounds, the ways out of a refusal.
HEAVY |= {"sqlite3", "storage.geography.layers", "engine.api.semirings.solving", "engine.execution.streamed"}
#: What only values need that are not plain.
HEAVY |= {"pydantic"}
HEAVY |= {"engine.streaming.schedule", "engine.api.prepared_planning", "engine.rows.asked_measures"}
#: What only those need who plan or compute: parts, and all that is known of what algorithms cost.
COMPUTING = {"engine.graph.partition", "engine.planning.cost", "engine.algorithms.prepared.tables"}


def heavy_imports(*words, heavy=HEAVY):
    """What of ``heavy`` a command imports, and its exit code."""
    code = (
        "import sys; from service.cli import main; code = main.run(sys.argv[2:]); "
        "print(' '.join({'numpy', *sys.argv[1].split()} & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(heavy), *map(str, words)], capture_output=True, text=True, check=False
    )
    *names, status = done.stderr.splitlines()[-1].split()
    return set(names), int(status)


def test_commands_import_what_they_need(tmp_path):
    graph, store = tmp_path / "g.csv", tmp_path / "g.zarr"
    graph.write_text("from,to,w\n" + "".join(f"v{i},v{i * 7 % 90},{i + 0.5}\n" for i in range(1, 90)))
    for command in (["solve", "--out", store], ["plan"], ["inspect"]):
        assert heavy_imports(command[0], tmp_path / "mistyped.csv", *command[1:]) == (set(), 2)
    assert heavy_imports("solve", graph, "--out", store) == ({"numpy", "numba"}, 0)
    assert heavy_imports("query", store, "summary") == ({"numpy"}, 0)
    assert heavy_imports("query", store, "distance", "v1", "v7", heavy=HEAVY | COMPUTING) == ({"numpy"}, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.graph", "3 2\n2\n1 3\n2\n"),  # METIS lists every edge at both of its ends
        ("g.csv", "from,to,w\na,b,1\nb,c,2\n"),
    ],
)
@pytest.mark.parametrize(
    "command", [("solve", "--out", "g.zarr"), ("plan",), ("near", "--nearest", "1", "--out", "n.csv")]
)
def test_a_small_graph_is_read_without_sparse_matrices(tmp_path, monkeypatch, name, text, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    found, status = heavy_imports(command[0], name, *command[1:], "--undirected")
    assert (found & {"scipy.sparse"}, status) == (set(), 0)


def test_the_choices_of_the_command_line_are_those_of_the_engine():
    from engine.model.algorithms import ALGORITHMS
    from engine.model.dtypes import WORK_TYPES

    def choices(name):
        return set(inspect.signature(main.solve).parameters[name].annotation.__origin__.__args__) - {"auto"}

    assert choices("algorithm") == set(ALGORITHMS)
    assert choices("dtype") == set(WORK_TYPES)


@pytest.mark.parametrize(("device", "starts"), [("cpu", 0), ("auto", 0), ("cuda", 1)])
@pytest.mark.parametrize(("command", "out"), [("plan", []), ("solve", ["--out", "s.zarr"])])
def test_the_driver_of_a_gpu_that_was_asked_for_starts_before_the_graph_is_read(
    command, out, device, starts, monkeypatch, tmp_path
):
    done = []

    def load(_):
        done.append("read")
        raise errors.NotFound("there is no such graph")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.csv").write_text("from,to,w\na,b,1\n")
    monkeypatch.setattr("engine.devices.cuda.starting.start_driver", lambda: done.append("start"))
    monkeypatch.setattr(solving, "load", load)
    assert main.run([command, "g.csv", *out, "--device", device]) == 2
    assert done == ["start"] * starts + ["read"]


def test_the_driver_of_a_gpu_starts_before_heavy_packages_are_imported(tmp_path):
    (tmp_path / "g.csv").write_text("from,to,w\na,b,1\n")
    code = (
        "import sys; from engine.devices.cuda import starting; from service.cli import main; "
        "heavy = {'numpy', 'numba', 'cupy', 'pydantic'}; "
        "starting.start_driver = lambda: sys.exit(7 if heavy.isdisjoint(sys.modules) else 8); "
        "sys.exit(main.run(['solve', 'g.csv', '--out', 'g.zarr', '--device', 'cuda']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
