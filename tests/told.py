"""A pytest plugin: ``--told FOLDER`` writes what happened to each test at once, so that a run cut off has lost nothing.

Summaries and JUnit files are written when a run ends, which one on a rented machine may never do.  ``tests.txt`` gets a
line when a test begins and one when it has ended, ``failures.txt`` the whole text of each failure, and the terminal its
name.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--told", metavar="FOLDER", help="write there at once which test begins and ends, and how")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Tell of the whole session, from the process that hears of all tests."""
    folder = config.getoption("told", None)
    if folder is None or hasattr(config, "workerinput"):
        return (yield)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "tests.txt").open("w") as tests, (place / "failures.txt").open("w") as failures:
        config.pluginmanager.register(_Teller(config, tests, failures))
        return (yield)


class _Teller:
    def __init__(self, config: pytest.Config, tests: TextIO, failures: TextIO) -> None:
        self._config, self._tests, self._failures = config, tests, failures
        self._outcome, self._seconds = dict[str, str](), dict[str, float]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(self._tests, f"begun {nodeid}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.failed:
            self._tell(name, report.when or "", report.longreprtext)
        if report.failed or (report.skipped and name not in self._outcome):
            self._outcome[name] = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, seconds = self._outcome.pop(nodeid, "passed"), self._seconds.pop(nodeid, 0.0)
        self._write(self._tests, f"{outcome} {nodeid} {seconds:.2f} s\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(report.nodeid, "collect", report.longreprtext)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(self._tests, f"finished with status {int(exitstatus)}\n")

    def _tell(self, name: str, when: str, text: str) -> None:
        self._write(self._failures, f"==== {name} ({when})\n{text}\n\n")
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            last = text.strip().rpartition("\n")[2]
            terminal.write_line(f"failed ({when}): {name}: {last}", red=True)

    @staticmethod
    def _write(file: TextIO, text: str) -> None:
        file.write(text)
        file.flush()
