"""Code blocks of the documents, and a place to run those of one page, in order.

What a reader does on a page happens here: one shell, one Python namespace, one folder, which stands for the root of
the repository.  A comment before a block says what is not plain; it is not shown on the page:

``<!-- test: not run, REASON -->``       it cannot run in a test, because of REASON
``<!-- test: slow -->``                  it runs in the long test of the page only
``<!-- test: background, NAME=REGEX -->``  it keeps running; what REGEX (or its group) finds in its output is then
                                         the shell's variable NAME
``<!-- test: output -->``                what the block before prints
``<!-- test: before, COMMANDS -->``      what the page takes for granted: commands that are run unseen

Blocks in ``r`` are run, and their output is compared, where ``Rscript`` is installed; blocks with the mark
``<!-- test: qgis -->`` where Debian's ``python3-qgis`` is.  ``APSP_REQUIRE_R=1`` and ``APSP_REQUIRE_QGIS=1`` make their
absence an error.

In ``console`` blocks a line that begins with ``$`` is a command, what follows is its output.  ``...`` stands for
anything, a line of nothing else for any lines; seconds, rates and memory may be others.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_COROUTINE
from pathlib import Path
from typing import Any

import psutil

from tests.commands import APSP
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
#: Where Debian has the Python modules of QGIS.
QGIS = Path("/usr/lib/python3/dist-packages/qgis")
RUN = {"sh", "bash", "console", "python", "r"}
DATA = {"text", "json", "toml", "ini", "yaml", "nginx"}
#: Numbers that differ from run to run: before these units.
_VARIES = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?= (?:ms|s|min|h|MiB|GiB|[a-zA-Z]+/s)\b)")
_TOKENS = re.compile(
    r"<!-- test: (?P<kind>not run|slow|background|output|before|qgis)(?:[,\n]\s*(?P<detail>.*?))?\s*-->"
    r"|^(?P<indent>[ ]*)```(?P<language>[^\s`]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, or the commands of a ``before`` comment (language ``before``)."""

    page: Path
    line: int
    language: str
    body: str
    kind: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order, each with what the comment before it says."""
    text = page.read_text(encoding="utf-8")
    found, kind, detail = [], "", ""
    assert text.count("<!-- test:") == sum(1 for token in _TOKENS.finditer(text) if token["kind"]), (
        f"{page}: a wrong mark"
    )
    for token in _TOKENS.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        if token["kind"] == "before":
            found.append(Block(page, line, "before", token["detail"]))
        elif token["kind"]:
            assert not kind, f"{page}:{line}: two marks for one block"
            kind, detail = token["kind"], token["detail"] or ""
        else:
            indent = re.compile(rf"^{token['indent']}", re.MULTILINE)
            found.append(Block(page, line, token["language"], indent.sub("", token["body"]), kind, detail))
            kind = detail = ""
    assert not kind, f"{page}: a mark without a block"
    return found


def pages() -> list[Path]:
    """The README, and all pages of the site's navigation."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    return [ROOT / "README.md", *(ROOT / "docs" / name for name in _leaves(navigation))]


def _leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry if isinstance(entry, list) else entry.values():
            yield from _leaves(below)


class Shell:
    """One bash for a page: variables, functions and the working folder stay from block to block."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._count = folder.parent / f"{folder.name}.shell", 0
        self._folder.mkdir()
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=folder, env=environment, text=True, process_group=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self) -> None:
        """End it and all that it started: politely, then not."""
        started = [] if self._bash.poll() is not None else psutil.Process(self._bash.pid).children(recursive=True)
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        deadline = time.monotonic() + 20
        while any(map(lives, started)) and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait(10)
        for stream in (self._bash.stdin, self._bash.stdout):
            if stream:
                stream.close()

    def run(self, script: str) -> tuple[int, str, str]:
        """Status, standard output and standard error of a script."""
        place = self._script(script)
        self._tell(f'source {place} > {place}.out 2> {place}.err < /dev/null; printf "%s\\n" $?')
        status = int(self._answer() or -1)  # set -e has ended the shell itself
        return status, Path(f"{place}.out").read_text(), Path(f"{place}.err").read_text()

    def begin(self, script: str, wanted: str) -> None:
        """Start a script and wait until its output has what ``NAME=REGEX`` wants; NAME is set to that."""
        name, pattern = wanted.split("=", 1)
        place = self._script(script)
        self._tell(f'( source {place} ) > {place}.out 2>&1 < /dev/null & printf "%s\\n" $!')
        self._answer()
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, Path(f"{place}.out").read_text())):
            assert time.monotonic() < deadline, f"no {pattern} in: {Path(f'{place}.out').read_text()}"
            time.sleep(0.1)
        assert self.run(f"export {name}='{found[found.re.groups]}'")[0] == 0

    def _script(self, script: str) -> Path:
        self._count += 1
        place = self._folder / str(self._count)
        place.write_text(script)
        Path(f"{place}.out").touch()
        return place

    def _tell(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line + "\n")
        self._bash.stdin.flush()

    def _answer(self) -> str:
        assert self._bash.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            assert selector.select(SECONDS), f"no end after {SECONDS} s"
        return self._bash.stdout.readline()


class Reader:
    """Somebody who follows a page from top to bottom.  Use as a context."""

    def __init__(self, folder: Path) -> None:
        (folder / "root").mkdir()
        self.folder = folder / "root"
        (self.folder / "examples").symlink_to(ROOT / "examples")
        self._address = f"127.0.0.1:{free_port()}"
        self._routing = free_port()  # on the pages `apsp serve-routes` listens on 5000, as OSRM does
        self._shell = Shell(self.folder, self._environment(folder))
        self._names: dict[str, Any] = {"__name__": "__main__"}
        #: What the block before has printed; None if it was not run, because its program is missing.
        self._printed: str | None = ""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()

    def _environment(self, folder: Path) -> dict[str, str]:
        """That of a user who has installed this tree and nothing else: ``apsp`` and ``python`` are its own."""
        programs = folder / "bin"
        programs.mkdir()
        for name, words in (("apsp", APSP), ("python", [sys.executable]), ("python3", [sys.executable])):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("APSP_")}
        port = self._address.rpartition(":")[2]
        own = {
            "APSP_PORT": port,
            "APSP_METRICS_PORT": "0",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "COLUMNS": "120",
        }
        return {**kept, **own, "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def follow(self, block: Block) -> None:
        """Do what the block says; AssertionError tells what came out differently."""
        body = block.body.replace("127.0.0.1:8000", self._address)
        body = re.sub(r"(127\.0\.0\.1:|--port )5000\b", rf"\g<1>{self._routing}", body)
        if block.kind == "background":
            self._shell.begin(body, block.detail)
        elif block.kind == "output":
            if self._printed is not None:
                compare(block, body.splitlines(), self._printed.splitlines())
        elif block.kind == "qgis":
            self._qgis(block, body)
        elif block.language == "python":
            self._python(block, body)
        elif block.language == "console":
            self._console(block, body)
        elif block.language == "r":
            self._r(block, body)
        elif block.language in RUN | {"before"}:
            status, self._printed, errors = self._shell.run(f"set -e\n{body}\nset +e")
            assert status == 0, f"{block}: status {status}\n{self._printed}\n{errors}"
        elif block.language == "json":
            json.loads(body)
        elif block.language == "toml":
            tomllib.loads(body)

    def _console(self, block: Block, body: str) -> None:
        for command, expected in _commands(body):
            status, out, errors = self._shell.run(command)
            out = out.replace(self._address, "127.0.0.1:8000")
            if status and not any(line.startswith("apsp: ") for line in expected):
                raise AssertionError(f"{block}: {command}: status {status}\n{out}\n{errors}")
            compare(block, expected, (errors if status else out).splitlines())

    def _r(self, block: Block, body: str) -> None:
        there = shutil.which("Rscript") is not None
        self._other(block, body, "Rscript --vanilla", there=there, required="APSP_REQUIRE_R")

    def _qgis(self, block: Block, body: str) -> None:
        # not the variables of this environment: QGIS brings modules for Debian's own Python
        python = "env -u PYTHONPATH -u VIRTUAL_ENV QT_QPA_PLATFORM=offscreen XDG_RUNTIME_DIR=$HOME /usr/bin/python3"
        there = QGIS.is_dir()
        self._other(block, body, python, there=there, required="APSP_REQUIRE_QGIS")

    def _other(self, block: Block, body: str, program: str, *, there: bool, required: str) -> None:
        """Run a block by a program that may not be installed."""
        self._printed = None
        if there:
            script = self.folder.parent / "block"
            script.write_text(body)
            status, self._printed, errors = self._shell.run(f"{program} {script}")
            assert status == 0, f"{block}: status {status}\n{self._printed}\n{errors}"
        assert there or os.environ.get(required) != "1", f"{block}: {program} is not installed, and {required} is 1"

    def _python(self, block: Block, body: str) -> None:
        lines = "\n" * block.line + body  # so that a traceback names the line of the page
        code = compile(lines, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        said = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(said), self._variables():
            if code.co_flags & CO_COROUTINE:
                asyncio.run(eval(code, self._names))
            else:
                exec(code, self._names)
        self._printed = said.getvalue()

    @contextlib.contextmanager
    def _variables(self) -> Iterator[None]:
        """What the shell has exported."""
        exported = self._shell.run("env -0")[1].split("\0")
        before = dict(os.environ)
        os.environ.update(item.split("=", 1) for item in exported if item and not item.startswith(("PATH=", "_=")))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def lives(process: psutil.Process) -> bool:
    """Whether it is there and no zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _commands(body: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block, with what it is said to print."""
    lines = body.splitlines()
    assert lines[0].startswith("$ "), "a console block begins with a command"
    command, expected = "", []
    for line in [*lines, "$ "]:
        if command.endswith("\\"):
            command = f"{command[:-1]}{line.removeprefix('>')}"
        elif line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        else:
            expected.append(line)


def compare(block: Block, expected: list[str], found: list[str]) -> None:
    """Where nothing is shown, anything may be printed."""
    while expected and not expected[-1].strip():
        expected.pop()
    if not expected:
        return
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else _line(_plain(line)) + r"[ ]*\n" for line in expected)
    text = "".join(_plain(line) + "\n" for line in found)
    assert re.fullmatch(pattern, text), f"{block} shows\n{chr(10).join(expected)}\n\nand this came:\n{text}"


def _plain(line: str) -> str:
    """A line; of JSON without the zero of whole fractions, which ``jq`` writes since version 1.7."""
    return re.sub(r"(?<=\d)\.0(?=[],}])", "", line) if line.startswith(("[", "{")) else line


def _line(text: str) -> str:
    """A pattern for a line: numbers that vary may be others, ``...`` is anything, blanks may be more or fewer."""
    parts = []
    for part in re.split(r"(\.\.\.)", text.rstrip()):
        if part == "...":
            parts.append(".*")
            continue
        last = 0
        for number in _VARIES.finditer(part):
            parts += [re.escape(part[last : number.start()]), r"[\d,.e+-]+"]
            last = number.end()
        parts.append(re.escape(part[last:]))
    return re.sub(r"(?:\\ )+", r" +", "".join(parts))
