"""The order of the packages, measured: sizes, names, docstrings, and tests where they are looked for.

Imports between packages and storeys are checked by import-linter (see test_repository).
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: What each figure may be at most.
MODULES_IN_A_FOLDER = 16
LONG_FUNCTIONS, LONG_FUNCTION = 18, 40
LONG_FILES, LONG_FILE = 4, 400
MANY_PARAMETERS, PARAMETERS = 20, 7
#: The share of public functions with three parameters or more that say what these are, at least.
DOCUMENTED = 0.7
#: The share of unit test files that have the path of a module, at least.
MIRRORED = 0.8


@cache
def modules() -> dict[Path, ast.Module]:
    files = [path for package in ("storage", "engine", "service") for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in files if "migrations" not in path.parts}


@cache
def functions() -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [(path, node) for path, tree in modules().items() for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    return [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return int(body[-1].end_lineno or 0) - body[0].lineno + 1


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)))


def unwanted() -> set[str]:
    """The words of the second table of the vocabulary, and their plurals."""
    table = (ROOT / "docs" / "vocabulary.md").read_text().partition("## Words that names do not use")[2]
    words = {word for row in re.findall(r"^\| ([a-z, ]+) \|", table, re.MULTILINE) for word in row.split(", ")} - {
        "word"
    }
    assert len(words) > 5
    return words | {f"{word}s" for word in words} | {"turned"}


def test_a_folder_can_be_looked_over():
    folders = Counter(str(path.parent) for path in modules() if path.name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > MODULES_IN_A_FOLDER} == {}


def test_every_module_of_the_engine_has_a_storey():
    assert [str(path) for path in modules() if path.parts[0] == "engine" and len(path.parts) == 2] == [
        "engine/__init__.py"
    ]


def test_functions_and_files_are_short():
    long = sorted(
        f"{lines_of(node)} {path}:{node.name}" for path, node in functions() if lines_of(node) > LONG_FUNCTION
    )
    assert len(long) <= LONG_FUNCTIONS, long
    files = [str(path) for path in modules() if len((ROOT / path).read_text().splitlines()) > LONG_FILE]
    assert len(files) <= LONG_FILES, files


def test_functions_take_few_parameters():
    many = [f"{path}:{node.name}" for path, node in functions() if len(parameters(node)) > PARAMETERS]
    assert len(many) <= MANY_PARAMETERS, many


def test_a_class_name_is_used_once():
    classes = defaultdict(list)
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(path))
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def kept_errors(node: ast.AST, own: frozenset[str], dropped: frozenset[str] = frozenset()) -> Iterator[int]:
    """Yield the lines of ``node`` that raise an error from a variable of ``own`` which no ``finally`` drops."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id in own - dropped:
        yield node.lineno
    if isinstance(node, ast.Try):
        last = [one for statement in node.finalbody for one in ast.walk(statement) if isinstance(one, ast.Name)]
        dropped |= {one.id for one in last if isinstance(one.ctx, ast.Del | ast.Store)}
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from kept_errors(child, own, dropped)


def test_no_function_keeps_the_error_that_it_raises():
    """Error and frame would refer to each other, and keep graphs and matrices until Python's next collection; an error
    caught by ``except ... as`` is dropped by Python itself.
    """
    found = []
    for path, node in functions():
        stored = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        own = frozenset([*parameters(node), *stored])
        found += [f"{path}:{line}" for statement in node.body for line in kept_errors(statement, own)]
    assert found == []


def test_names_use_the_words_of_the_field():
    banned, found = unwanted(), []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            for attribute in ("name", "id", "arg", "attr"):
                name = getattr(node, attribute, None)
                if isinstance(name, str) and words_of(name) & banned:
                    found.append(f"{path}:{getattr(node, 'lineno', 0)} {name}")
    assert found == []


def test_public_functions_say_what_their_arguments_are():
    public = [
        (path, node) for path, node in functions() if not node.name.startswith("_") and len(parameters(node)) >= 3
    ]
    silent = [f"{path}:{node.name}" for path, node in public if "Args:" not in (ast.get_docstring(node) or "")]
    assert len(silent) <= (1 - DOCUMENTED) * len(public), silent


def test_unit_tests_have_the_paths_of_modules():
    unit = ROOT / "tests" / "unit"
    names = [path.with_name(path.name.removeprefix("test_")).relative_to(unit) for path in unit.rglob("test_*.py")]
    lost = [str(name) for name in names if name not in modules()]
    assert len(lost) <= (1 - MIRRORED) * len(names), lost
