"""Numbers that predictions are made with: each stands once, in one module, with a record."""

import ast
import re
from pathlib import Path

import pytest

from engine.planning import constants
from engine.planning.constants import RECORDS, Basis

PLANNING = Path(constants.__file__).parent


def numbers(module):
    """Names of a module's constants, by its source: capitals that are set to something other than a text."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            value = node.value
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                yield node.target.id, value


def test_each_number_has_a_record_under_its_own_name():
    named = {name for name, value in numbers(Path(constants.__file__)) if isinstance(value, ast.Call)}
    assert named == set(RECORDS)
    for name, record in RECORDS.items():
        assert getattr(constants, name) is record.value, name


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_record_says_unit_and_origin(name):
    record = RECORDS[name]
    assert record.unit
    assert re.fullmatch("[0-9a-f]{7}", record.since)
    assert (record.machine != "") == (record.basis is Basis.MEASURED)


@pytest.mark.parametrize("module", sorted(p.name for p in PLANNING.glob("*.py") if p.name != "constants.py"))
def test_other_modules_of_planning_have_no_numbers_of_their_own(module):
    """Neither one nor several in an expression; layouts to choose from and ends of types are not estimates."""
    found = {
        name
        for name, value in numbers(PLANNING / module)
        if any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in ast.walk(value))
    }
    assert {name for name in found if not name.endswith(("_HEIGHTS", "_WIDTHS", "_SLOTS"))} <= {"TILE", "SMALLEST"}
