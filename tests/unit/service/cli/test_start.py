"""The start of the command line: it imports nothing before the system answers interrupts, and says nothing of them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_imports_nothing_that_takes_time():
    code = "import sys, signal; before = set(sys.modules); import service.cli.start; print(*set(sys.modules) - before)"
    assert set(run(code).stdout.split()) <= {"__future__", "gc", "types", "service", "service.cli", "service.cli.start"}


@pytest.mark.parametrize(("before", "within"), [("default_int_handler", signal.SIG_DFL), ("SIG_IGN", signal.SIG_IGN)])
def test_the_system_answers_while_the_command_line_is_imported(before: str, within: signal.Handlers):
    code = (
        f"import signal, sys; signal.signal(signal.SIGINT, signal.{before}); from service.cli import start\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'service.cli.main':\n"
        "            print(signal.getsignal(signal.SIGINT)); sys.exit()\n"
        "sys.meta_path.insert(0, Finder()); start.main()"
    )
    assert run(code).stdout.strip() == str(int(within))


@pytest.mark.parametrize(("error", "shown"), [("KeyboardInterrupt", False), ("ZeroDivisionError('boom')", True)])
def test_only_an_interrupt_that_nothing_catches_is_silent(error: str, shown: bool):
    code = f"from service.cli import main, start\ndef fail(): raise {error}\nmain.main = fail\nstart.main()"
    done = run(code)
    assert ("Traceback" in done.stderr and "boom" in done.stderr) == shown
    assert done.returncode == (1 if shown else -signal.SIGINT)
    assert shown or done.stderr == ""


def test_a_command_that_ends_looks_for_no_garbage():
    code = (
        "import atexit, gc, sys; from service.cli import start; atexit.register(lambda: print(gc.isenabled()))\n"
        "sys.argv = ['apsp', 'version']\nstart.main()"
    )
    assert run(code).stdout.split()[-1] == "False"
