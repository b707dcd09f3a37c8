"""Help pages: all commands in whole sentences, examples that can be run, colours on terminals only."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
import typer.core
from typer.main import get_command

from service.cli import help_pages, main
from tests.commands import APSP

PROGRAM = get_command(main.app)
LINES = [(name, line) for name, lines in help_pages.EXAMPLES.items() for line in lines]


def page(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    command, context = PROGRAM, typer.Context(PROGRAM, info_name="apsp")
    for word in words:
        command = command.commands[word]
        context = typer.Context(command, info_name=word, parent=context)
    return command.get_help(context)


def test_the_program_alone_shows_its_help(capsys):
    assert main.run([]) == 0
    alone = capsys.readouterr()
    assert main.run(["--help"]) == 0
    assert alone.out == capsys.readouterr().out
    assert alone.err == ""
    assert "Usage: apsp" in alone.out


def test_every_command_is_in_one_group_with_its_whole_sentence(capsys):
    shown = page(capsys=capsys)
    grouped = [name for names in help_pages.GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    text = " ".join(shown.split())
    for name, command in PROGRAM.commands.items():
        assert len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1, name
        assert f"{name} {' '.join(command.help.split())}" in text
    assert "..." not in shown.replace("[ARGS]...", "")


def test_a_command_without_a_group_is_shown_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(help_pages, "GROUPS", {"Solve here": ("solve",)})
    shown = page(capsys=capsys)
    assert re.search(r"^More:\n(  .*\n)*  plot ", shown, re.MULTILINE)


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_is_understood_and_stands_on_its_page(name, line, capsys):
    if name not in PROGRAM.commands:
        pytest.skip("that command is not there")
    program, command, *words = shlex.split(line)
    assert (program, command) == ("apsp", name)
    PROGRAM.commands[name].make_context(name, words)  # raises for an option that there is not
    assert f"\n  {line}\n" in page(name, capsys=capsys) + "\n"


def test_options_that_are_alike_have_a_heading(capsys):
    shown = page("solve", capsys=capsys)
    found = re.findall(r"^([A-Z][^:\n]*):$", shown, re.MULTILINE)
    assert found == ["Arguments", "Options", "How GRAPH is read", "How it is solved", "What is written", "Examples"]
    assert shown.startswith("Usage: apsp solve [OPTIONS] GRAPH\n")
    assert shown.index("How GRAPH") < shown.index("--weight") < shown.index("How it") < shown.index("--dtype")


@pytest.mark.parametrize(
    ("terminal", "environment", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals(terminal, environment, colours, monkeypatch, capsys):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    shown = page("plan", capsys=capsys)
    assert ("\x1b[1mOptions:\x1b[0m" in shown) == colours
    assert ("\x1b[36m--out\x1b[0m" in shown) == colours or ("\x1b[36m-o, --out\x1b[0m" in shown) == colours
    plain = re.sub(r"\x1b\[\d+m", "", shown)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert plain == page("plan", capsys=capsys)


@pytest.mark.parametrize(
    ("said", "better"),
    [
        ("Value error, 'x' is not one of 'cpu', 'cuda'.", "'x' is not one of 'cpu', 'cuda'."),
        ("'cdua' is not one of 'cpu', 'cuda'.", "'cdua' is not one of 'cpu', 'cuda'. Did you mean 'cuda'?"),
        ("No such option: --thread (Possible options: --threads)", "No such option: --thread. Did you mean --threads?"),
        ("Missing option '--out'.", "Missing option '--out'."),
    ],
)  # fmt: skip
def test_messages_name_what_comes_nearest(said, better):
    assert help_pages.plainer(said) == better


def test_a_mistyped_algorithm_is_told_with_the_nearest(capsys):
    assert main.run(["solve", "g.csv", "--out", "s.zarr", "--algorithm", "dijkstr"]) == 2
    assert "Did you mean 'dijkstra'?" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "word", "found"), [("apsp so", 1, "solve"), ("apsp solve --wei", 2, "--weight")])
def test_a_shell_completes_commands_and_options(words, word, found):
    asked = {"_APSP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(word)}
    done = subprocess.run(APSP, env={**os.environ, **asked}, capture_output=True, text=True, check=False, timeout=60)
    assert found in done.stdout.split()
    assert done.returncode == 0


def described(command: typer.core.TyperCommand) -> object:
    """Return all that Typer knows of a command and its parameters, but for the functions that it has made anew."""
    made = {
        name: value
        for name, value in vars(command).items()
        if name not in ("params", "callback", "commands", "_help_option")
    }
    parameters = [
        {
            name: (value if name != "type_descriptor" else (value.annotation, vars(value.parameter_info)))
            for name, value in vars(one).items()
            if name not in ("callback", "get_runtime_param", "_custom_shell_complete", "_runtime_param")
        }
        for one in command.params
    ]
    return (
        made,
        getattr(command.callback, "__name__", None),
        [repr(one) for one in parameters],
        [type(one) for one in command.params],
    )


def all_of(group: typer.core.TyperGroup) -> dict[str, typer.core.TyperCommand]:
    found = {name: group.commands[name] for name in group.commands}
    return found | {f"key {name}": one for name, one in found["key"].commands.items()}


def test_a_command_that_is_made_on_demand_is_what_typer_makes():
    program = help_pages.program_of(main.app)
    ours, typers = all_of(program), all_of(get_command(main.app))
    assert list(ours) == list(typers)
    for name, one in typers.items():
        assert described(ours[name]) == described(one), name
        if not name.startswith("key "):
            assert program.help_of(name) == one.help
    assert described(program)[1:] == described(PROGRAM)[1:]
    assert isinstance(program.commands, help_pages.CommandsOnDemand)
    assert len(program.commands) == len(PROGRAM.commands)
    assert "no-such-command" not in program.commands


def test_only_the_command_that_was_said_is_made(monkeypatch, capsys):
    made = []
    monkeypatch.setattr(help_pages, "get_command", lambda app: made.append(app) or get_command(app))
    for words in (["--help"], ["version"], ["status"], ["no-such-command"], ["versoin"]):
        made.clear()
        main.run(words)
        names = [one.callback.__name__ for app in made for one in app.registered_commands]
        assert names == [word for word in words if word in ("version", "status")]
        assert [name for app in made for name in app.registered_groups] == []
    assert "Did you mean 'version'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["apsp ", "apsp so", "apsp solve --", "apsp solve --algo", "apsp key ", "apsp key create --", "apsp --"]
)
def test_completion_lists_what_typer_lists(words, monkeypatch, capsys):
    for name, value in (
        ("_APSP_COMPLETE", "complete_bash"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", str(len(words.split(" ")) - 1)),
    ):
        monkeypatch.setenv(name, value)
    found = []
    for program in (help_pages.program_of(main.app), get_command(main.app)):
        with pytest.raises(SystemExit):
            program([], prog_name="apsp")
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    assert found[0]
