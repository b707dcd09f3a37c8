"""Tests ``apsp submit`` and the other commands that use a service, as processes with a real service and a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli import main
from tests.commands import APSP, run_here
from tests.integration.keyed_service import KeyedService
from tests.stores import verify_matrix

pytestmark = pytest.mark.beside

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROADS = EXAMPLES / "helsinki_drive.csv"
U, V = "1372477605", "25291537"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    with KeyedService(tmp_path_factory.mktemp("service") / "data", APSP_RUNNER_NICE="0") as service:
        yield service


def environment(live: KeyedService) -> dict[str, str]:
    return {**os.environ, "APSP_SERVER": live.url, "APSP_KEY": live.key}


def apsp(live: KeyedService, *words: object, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error; the key is in neither."""
    done = run_here(*words, APSP_SERVER=live.url, APSP_KEY=live.key)
    assert done.returncode == code, done.stderr
    assert live.key not in done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def solved(live: KeyedService) -> str:
    out, err = apsp(live, "submit", ROADS, "--name", "roads", "--wait")
    job = out.splitlines()[0]
    assert f"job {job}\n  name   roads\n  state  successful\n" in out
    assert "pairs     945,756" in out
    assert "successful: 100 %" in err
    return job


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyedService]:
    """A service whose jobs wait for ever."""
    with KeyedService(tmp_path_factory.mktemp("idle") / "data", APSP_RUNNERS="none") as service:
        yield service


def test_every_command_and_its_json(live, solved, tmp_path):
    assert json.loads(apsp(live, "status", solved, "--json")[0])["state"] == "successful"
    assert json.loads(apsp(live, "wait", solved, "--json")[0])["summary"]["pairs"] == 945_756
    assert json.loads(apsp(live, "cancel", solved, "--json")[0])["id"] == solved
    assert solved in [job["id"] for job in json.loads(apsp(live, "jobs", "--json")[0])["jobs"]]
    line = rf"^{solved[-8:]}  successful  +100 %  +973 x 973  \S+  .* s  20\d\d-\d\d-\d\d .*  roads$"
    assert re.search(line, apsp(live, "jobs", "--limit", 100)[0], re.MULTILINE)
    graphs = apsp(live, "graphs")[0]
    assert re.search(r"^[0-9a-f]{32} +973 +1,624  .*  roads$", graphs, re.MULTILINE), graphs
    assert 973 in [graph["n"] for graph in json.loads(apsp(live, "graphs", "--json")[0])["graphs"]]
    assert "attempt 1 begins" in apsp(live, "log", solved)[0]
    assert "attempt 1 begins" in json.loads(apsp(live, "log", solved, "--json")[0])["log"]
    again = json.loads(apsp(live, "submit", ROADS, "--json")[0])
    assert again["id"] == solved, "the same graph with the same options is answered with what is there"
    store = tmp_path / "roads.zarr"
    fetched = json.loads(apsp(live, "fetch", solved, "--out", store, "--json")[0])
    assert (fetched["store"], fetched["job"]) == (str(store), solved)
    verify_matrix(store)


@pytest.mark.parametrize(
    "words",
    [("distance", U, V), ("path", U, V), ("row", U), ("nearest", U, 7), ("within", U, 600.5), ("summary",)],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_question_has_the_same_answer_here_and_there(live, solved, words, form, tmp_path_factory):
    store = tmp_path_factory.getbasetemp() / "same.zarr"
    if not store.exists():
        apsp(live, "fetch", solved, "--out", store)
    here, there = (apsp(live, "query", place, *words, *form)[0] for place in (store, solved))
    if form:
        here, there = (json.loads(text) for text in (here, there))
        told = [answer.pop(name, None) for answer, name in ((here, "store"), (there, "job"))]
        assert words != ("summary",) or (told, here["unit"]) == ([str(store), solved], "weight")
    elif words == ("summary",):
        here, there = here.removeprefix(str(store)), there.removeprefix(f"job {solved}")
    assert here == there


def test_sources_targets_and_options_are_sent(live):
    out = apsp(
        live, "submit", ROADS, "--sources", f"{U},{V}", "--targets", V, "--cutoff", 900, "--memory", "1GiB", "--json"
    )
    options = json.loads(out[0])["options"]
    assert (options["sources"], options["targets"], options["cutoff"]) == ([U, V], [V], 900)
    assert options["memory"] == 2**30


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("status", "nothing"), 2, "there is no job 'nothing'"),
        (("status", "ffffffff"), 2, "begins or ends with 'ffffffff'"),
        (("delete", "JOB", "--limit", 3), 2, "--limit"),
        (("resume", "JOB"), 2, "is successful"),
        (("query", "JOB", "within", U, "far"), 2, "'far'"),
        (("query", "JOB", "nearest", U, "-1"), 2, "'-1'"),
        (("submit", "nowhere.csv"), 2, "nowhere.csv"),
        (("submit", ROADS, "--memory", "1"), 3, "memory"),
        (("submit", ROADS, "--sources", "7"), 2, "7"),
        (("jobs", "--server", "example.org"), 2, "no address of a service"),
        (("query", "JOB", "distance", "7", U), 2, "no vertex '7'"),
        (("query", "JOB", "distance", U), 2, "2 needed"),
        (("query", "JOB", "length", U), 2, "no query 'length'"),
        (("fetch", "JOB", "--out", "nowhere/x.zarr"), 2, "does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_its_exit_code(live, solved, words, code, said):
    out, err = apsp(live, *(solved if word == "JOB" else word for word in words), *_fresh(words), code=code)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert said in err


def _fresh(words: tuple[object, ...]) -> list[str]:
    return ["--fresh"] if words[0] == "submit" else []


def test_how_a_file_is_read_is_sent_and_notes_come_back(live, tmp_path):
    links = [(3, 1, 1), (1, 4, 1), (3, 5, 10), (5, 4, 10), (4, 3, 7)]
    head = "<NUMBER OF NODES> 5\n<FIRST THRU NODE> 3\n<NUMBER OF LINKS> 5\n<END OF METADATA>\n"
    rows = "~\tinit_node\tterm_node\tlength\t;\n" + "".join(f"\t{u}\t{v}\t{w}\t;\n" for u, v, w in links)
    (tmp_path / "zones_net.tntp").write_text(head + rows)
    out, err = apsp(live, "submit", tmp_path / "zones_net.tntp", "--wait")
    assert "note: no path passes through the 2 centroids 1 .. 2" in err
    job = out.splitlines()[0]
    assert apsp(live, "query", job, "distance", 3, 4)[0] == "20\n"
    apsp(live, "fetch", job, "--out", tmp_path / "zones.zarr")
    for place in (job, tmp_path / "zones.zarr"):
        path = json.loads(apsp(live, "query", place, "path", 1, 5, "--json")[0])
        assert (path["vertices"], path["length"]) == ([1, 4, 3, 5], 18)
        assert json.loads(apsp(live, "query", place, "path", 5, 1, "--json")[0])["vertices"] == [5, 4, 3, 1]
    apsp(live, "verify", tmp_path / "zones.zarr")
    out, _ = apsp(live, "submit", tmp_path / "zones_net.tntp", "--centroids-through", "--wait")
    assert apsp(live, "query", out.splitlines()[0], "distance", 3, 4)[0] == "2\n"
    (tmp_path / "scores.csv").write_text("x,here,there,score\n7,1,2,900\n8,2,3,150\n")
    words = ("--from", "there", "--to", "here", "--length-of", "1000 - score")
    out, err = apsp(live, "submit", tmp_path / "scores.csv", *words, "--wait")
    assert "note: not read: column x" in err
    assert apsp(live, "query", out.splitlines()[0], "distance", 3, 1)[0] == "950\n"
    assert "--length-of '1000 - score'" in apsp(live, "submit", tmp_path / "scores.csv", *words[:4], code=2)[1]


def test_a_job_that_fails_and_one_that_takes_too_long(live, idle, tmp_path):
    cycle = tmp_path / "cycle.csv"
    cycle.write_text("u,v,w\n1,2,1\n2,1,-2\n")
    assert "negative cycle" in apsp(live, "submit", cycle, "--wait", code=2)[1]
    job = apsp(idle, "submit", ROADS)[0].strip()
    assert "the job continues" in apsp(idle, "wait", job, "--timeout", 0, code=1)[1]
    assert apsp(idle, "cancel", job)[0] == f"{job}: dismissed\n"
    assert "was cancelled" in apsp(idle, "wait", job, code=1)[1]
    assert json.loads(apsp(idle, "wait", job, "--json", code=1)[0])["state"] == "dismissed"


def test_a_part_of_an_id_is_enough_and_lists_have_pages(idle):
    jobs = [apsp(idle, "submit", ROADS, "--cutoff", 100 + i)[0].strip() for i in range(3)]
    assert json.loads(apsp(idle, "status", jobs[0][-8:], "--json")[0])["id"] == jobs[0]
    assert "accepted" in apsp(idle, "status", jobs[1][:-1])[0]
    several = apsp(idle, "cancel", jobs[0][:6], code=2)[1]
    assert f"jobs have ids that begin or end with {jobs[0][:6]!r}" in several
    out, err = apsp(idle, "jobs", "--limit", 2, "--state", "accepted")
    assert [line.split()[0] for line in out.splitlines()] == ["job", jobs[2][-8:], jobs[1][-8:]]
    assert "note: older ones: apsp jobs --state accepted --limit 2 --page 2" in err
    second = json.loads(apsp(idle, "jobs", "--limit", 2, "--page", 2, "--state", "accepted", "--json")[0])
    assert second["jobs"][0]["id"] == jobs[0]
    assert apsp(idle, "cancel", jobs[0][-8:])[0] == f"{jobs[0]}: dismissed\n"
    assert "no checkpoint" in apsp(idle, "resume", jobs[0][-8:], code=2)[1]
    assert "cancel it" in apsp(idle, "delete", jobs[1], code=2)[1]
    assert apsp(idle, "delete", jobs[0][-8:])[0] == f"{jobs[0]}: deleted\n"
    assert "deleted" in apsp(idle, "status", jobs[0], code=2)[1]
    assert apsp(idle, "log", jobs[1])[0] == ""
    assert "note: older ones: apsp graphs" not in apsp(idle, "graphs", "--limit", 1)[1]


def test_a_service_that_is_down_is_told_soon(live):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        err = apsp(live, "jobs", "--server", address, code=1)[1]
    assert f"no answer from {address}" in err
    assert time.monotonic() - began < 20, "as patient as an upload"


def test_nobody_there_and_no_key(live, capsys, monkeypatch):
    monkeypatch.delenv("APSP_SERVER", raising=False)
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert main.run(["jobs"]) == 2
        assert "set APSP_SERVER" in capsys.readouterr().err
        monkeypatch.setenv("APSP_KEY", "")
        assert main.run(["jobs", "--server", live.url]) == 2
        assert "key" in capsys.readouterr().err
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, live: KeyedService, *words: object) -> None:
        self.shown = ""
        master, slave = pty.openpty()
        self._master = master
        self.process = subprocess.Popen(
            [*APSP, *map(str, words)], env={**environment(live), "TERM": "xterm", "COLUMNS": "100"},
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def read_until(self, pattern: str, seconds: float = 120) -> str:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self._master, 1 << 16).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    assert re.search(pattern, self.shown), self.shown
        return self.shown

    def close(self) -> int:
        status = self.process.wait(60)
        os.close(self._master)
        return status


def test_ctrl_c_leaves_the_job_running_and_says_how_to_come_back(idle):
    terminal = Terminal(idle, "submit", ROADS, "--wait")
    job = re.search(r"[0-9a-f-]{36}", terminal.read_until(r"[0-9a-f-]{36}"))[0]  # type: ignore[index]
    terminal.read_until(r"accepted.*\d%")
    terminal.process.send_signal(signal.SIGINT)
    shown = terminal.read_until("wait for it with")
    assert terminal.close() == 130
    assert f"apsp wait {job} --server {idle.url}" in re.sub(r"\s+", " ", shown)
    assert idle.key not in shown
    assert "Traceback" not in shown
    assert idle.job(job)["state"] == "accepted"


def test_a_terminal_shows_a_bar(live, solved, tmp_path):
    terminal = Terminal(live, "fetch", solved, "--out", tmp_path / "bar.zarr")
    shown = terminal.read_until("and checked")
    assert terminal.close() == 0
    assert "━" in shown
    assert "100%" in shown


def test_a_terminal_shows_no_column_of_a_services_weights(live, solved):
    """A graph is stored once for all users, whose files may give its weights different names."""
    terminal = Terminal(live, "query", solved, "distance", U, V)
    terminal.read_until(r"\d\s")
    assert terminal.close() == 0
    assert "length_m" not in terminal.shown
    assert "length_m" not in apsp(live, "wait", solved)[0]


def test_an_interrupted_fetch_is_gone_on_with(live, solved, tmp_path):
    store = tmp_path / "roads.zarr"
    staged = tmp_path / ".roads.zarr.working"
    command = [*APSP, "fetch", solved, "--out", str(store)]
    with subprocess.Popen(command, env=environment(live), stderr=subprocess.PIPE, text=True) as process:
        while not (staged / "record.json").exists() and process.poll() is None:
            time.sleep(0.001)
        process.kill()
    assert staged.exists() or store.exists(), "it was killed in time, or it was done"
    if not store.exists():
        apsp(live, "fetch", solved, "--out", store)
        assert list(tmp_path.iterdir()) == [store]
    verify_matrix(store)
