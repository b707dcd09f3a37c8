"""The help pages of ``apsp --help`` and ``apsp COMMAND --help``: commands in groups, whole sentences, examples, colour.

This module imports nothing heavy.  Colour is used on terminals only, and not where ``NO_COLOR`` is set.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from inspect import getdoc
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_name, solve_typer_info_help
from typer.models import CommandInfo, TyperInfo

from service.cli.plain_values import take_plainly

#: Commands in the order in which they are shown, below the heading of their group.
GROUPS: Final = {
    "Look and plan": ("inspect", "plan"),
    "Solve here": ("solve", "solve-many", "prepare", "reweight", "near", "measure", "betweenness", "assign", "warm"),
    "Use a result": ("query", "export", "plot", "verify"),
    "Ask a service": (
        "submit", "wait", "status", "log", "fetch", "jobs", "graphs", "cancel", "resume", "delete",
    ),
    "Run a service": ("serve", "serve-routes", "key", "runner", "worker"),
    "This program": ("version",),
}  # fmt: skip

#: Command lines that are shown below the options of a command.
EXAMPLES: Final = {
    "inspect": (
        "apsp inspect roads.csv",
        "apsp inspect roads.graphml --weight travel_time",
        "apsp inspect roads.csv --nodes nodes.csv",
    ),
    "plan": ("apsp plan roads.csv --out roads.zarr", "apsp plan roads.csv --prepared --out roads.prepared"),
    "solve": (
        "apsp solve roads.csv --out roads.zarr",
        "apsp solve roads.csv --out shops.zarr --targets @shops.txt --cutoff 900",
        "apsp solve roads.csv --out roads.zarr --resume",
    ),
    "solve-many": (
        "apsp solve-many graphs/ --out stores/ --summary lengths.csv",
        "apsp solve-many @list.txt --summary lengths.jsonl",
    ),
    "prepare": ("apsp prepare roads.csv --out roads.prepared",),
    "reweight": ("apsp reweight roads.prepared --weights closed.csv --changed --out roads.closed",),
    "near": (
        "apsp near roads.csv --cutoff 5000 -o near.parquet",
        "apsp near roads.csv --nearest 10 --targets @hospitals.txt -o hospitals.csv",
        "apsp near city.graphml --unit m --nearest 1 --targets @hospitals.csv -o nearest.geojson",
    ),
    "measure": (
        "apsp measure roads.csv --within 15,30 --opportunities jobs.csv -o access.parquet",
        "apsp measure proteins.csv --direction in --measures closeness,harmonic",
    ),
    "betweenness": (
        "apsp betweenness roads.csv -o between.parquet",
        "apsp betweenness network.csv --undirected --unweighted --of arcs --raw",
    ),
    "assign": ("apsp assign roads.csv --demands trips.csv -o flows.csv",),
    "warm": ("apsp warm",),
    "query": (
        "apsp query roads.zarr distance 17 42",
        "apsp query roads.zarr path 17 42",
        "apsp query city.zarr path 17 42 -o route.geojson",
        "apsp query roads.zarr nearest 17 5",
        "apsp query roads.zarr within 17 900",
        "apsp query city.zarr distance home school --points places.csv",
        "apsp query roads.zarr summary --json",
    ),
    "export": (
        "apsp export roads.zarr -o roads.csv --sources 17,42",
        "apsp export roads.zarr -o near.parquet --within 900",
        "apsp export city.zarr -o from17.geojson --sources 17",
        "apsp export roads.zarr -o shops.csv --targets @shops.txt --nearest 3 --itself",
        "apsp export roads.zarr -o table.csv --wide --sources @zones.txt --targets @zones.txt",
    ),
    "plot": (
        "apsp plot roads.zarr -o roads.png",
        "apsp plot city.zarr --map --from 17 --to 42 --classes 5,10,15 -o city.png",
    ),
    "verify": ("apsp verify roads.zarr", "apsp verify roads.zarr --sample all"),
    "submit": ("apsp submit roads.csv --name roads --wait",),
    "wait": ("apsp wait 3f9c51d2 --timeout 600",),
    "status": ("apsp status 3f9c51d2",),
    "log": ("apsp log 3f9c51d2",),
    "fetch": ("apsp fetch 3f9c51d2 --out roads.zarr",),
    "jobs": ("apsp jobs --state running", "apsp jobs --limit 20 --page 2"),
    "graphs": ("apsp graphs --limit 20",),
    "cancel": ("apsp cancel 3f9c51d2",),
    "resume": ("apsp resume 3f9c51d2",),
    "delete": ("apsp delete 3f9c51d2",),
    "serve": ("apsp serve --data-dir /var/lib/apsp", "apsp serve --show-settings"),
    "serve-routes": ("apsp serve-routes city.zarr --port 5000",),
    "runner": ("apsp runner --devices cuda0,cuda1",),
    "worker": ("apsp worker --scheduler tcp://node0:8786",),
}

_HEADING: Final = re.compile(r"^(Usage|[A-Z][A-Za-z ]*)(:)(?=$| )", re.MULTILINE)
_NAME: Final = re.compile(r"^(  )(-[\w-]+(?:[,/ ]+-[\w-]+)*|[a-z][a-z-]*)(?=  |$| [A-Z<\[])", re.MULTILINE)
_BOLD, _CYAN, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[0m"


def coloured() -> bool:
    """Return whether standard output is a terminal that shows colours; ``NO_COLOR`` switches them off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout is not None and sys.stdout.isatty()


def decorated(text: str) -> str:
    """Return a help page with bold headings and coloured names."""
    return _NAME.sub(rf"\1{_CYAN}\2{_PLAIN}", _HEADING.sub(rf"{_BOLD}\1\2{_PLAIN}", text))


class HelpfulCommand(TyperCommand):
    """A command whose help ends with examples, and which takes plain values without Typer's converters."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with --help."""
        return [take_plainly(parameter) for parameter in super().get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, without braces around required arguments."""
        return [piece.removeprefix("{").removesuffix("}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, each kind below its own heading."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(record)
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if examples := EXAMPLES.get(self.name or ""):
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        text = super().get_help(ctx)
        return decorated(text) if coloured() else text


class GroupedCommands(TyperGroup):
    """The program, which lists its commands in groups."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with --help."""
        return [take_plainly(parameter) for parameter in super().get_params(ctx)]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's
        """Return the names of all commands, in the order of their groups."""
        order = [name for names in GROUPS.values() for name in names]
        return sorted(self.commands, key=lambda name: order.index(name) if name in order else len(order))

    def help_of(self, name: str) -> str:
        """Return the help text of a command, without making the command."""
        commands = self.commands
        return commands.help_of(name) if isinstance(commands, CommandsOnDemand) else str(commands[name].help)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in groups, each with the first paragraph of its help text, wrapped but not shortened."""
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in grouped)
        for heading, names in {**GROUPS, "More": others}.items():
            found = [(name, self.help_of(name)) for name in names if name in self.commands]
            rows = [(f"{name:12}", text.split("\n\n")[0]) for name, text in found]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        text = super().get_help(ctx)
        return decorated(text) if coloured() else text


class CommandsOnDemand(Mapping[str, Any]):
    """The commands of a program by name; Typer makes a command when it is first looked up."""

    def __init__(self, app: typer.Typer) -> None:
        self._app, self._made = app, dict[str, Any]()
        self._said: dict[str, Any] = {
            one.name or get_command_name(cast(Any, one.callback).__name__): one for one in app.registered_commands
        }
        self._said |= {str(one.name): one for one in app.registered_groups}

    def __getitem__(self, name: str) -> Any:
        """Return a command, with all its parameters."""
        if name not in self._made:
            program: Any = get_command(_part_of(self._app, self._said[name]))
            self._made[name] = program.commands[name]
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._said

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def help_of(self, name: str) -> str:
        """Return the help text of a command, as Typer takes it from the declaration of the command."""
        said = self._said[name]
        return solve_typer_info_help(said) if isinstance(said, TyperInfo) else str(getdoc(said.callback))


def _part_of(app: typer.Typer, said: CommandInfo | TyperInfo | None) -> typer.Typer:
    """Return a copy of ``app`` that has only the command or group ``said``, or no command if ``said`` is None."""
    part = copy(app)
    part.registered_commands = [said] if isinstance(said, CommandInfo) else []
    part.registered_groups = [said] if isinstance(said, TyperInfo) else []
    return part


def program_of(app: typer.Typer) -> Any:
    """Return the program of ``app`` as Typer makes it, except that each command is made when it is first looked up.

    To make the parameters of all commands takes 0.07 s of processor time, and a command line names only one command.
    """
    program: Any = get_command(_part_of(app, None))
    program.commands = CommandsOnDemand(app)
    return program


def command(app: typer.Typer, name: str | None = None, **options: Any) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that adds a command with the help page of ``HelpfulCommand`` to ``app``."""
    return app.command(name, cls=HelpfulCommand, **options)


def plainer(message: str) -> str:
    """Return a message about a mistyped command line in this program's words, with the most similar valid choice."""
    message = message.replace("Value error, ", "")
    message = re.sub(r"\(Possible options: (.*)\)", r". Did you mean \1?", message).replace(" . Did", ". Did")
    if choice := re.search(r"'([^']*)' is not one of ((?:'[^']*'(?:, )?)+)\.?", message):
        near = difflib.get_close_matches(choice[1], re.findall(r"'([^']*)'", choice[2]), n=1)
        if near:
            message = f"{message.rstrip('.')}. Did you mean '{near[0]}'?"
    return message
