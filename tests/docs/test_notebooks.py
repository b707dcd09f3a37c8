"""The notebooks run from top to bottom, and are kept without their output.

Cells are run as plain Python in a process of their own, what a cell ends with is shown as a notebook would: that needs
no Jupyter, of which forty packages would be installed for two files.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: Runs the cells of the notebook that is named; prints how many shapes were shown and pictures drawn.
RUNNER = """
import ast, json, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot
names, shown = {"__name__": "__main__"}, 0
if __name__ == "__main__":
    for k, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {k}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {k}", "eval"), names)
            html = getattr(value, "_repr_html_", None)
            shown += bool(html() if html else repr(value))
    print("shown", shown, "figures", len(matplotlib.pyplot.get_fignums()))
"""


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {"city", "protein"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_output(path):
    assert [cell for cell in cells(path) if cell.get("outputs") or cell.get("execution_count")] == []
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    folder = tmp_path / "examples"
    folder.mkdir()
    for file in (ROOT / "examples").iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    (tmp_path / "runner.py").write_text(RUNNER)
    done = subprocess.run(
        [sys.executable, tmp_path / "runner.py", path.name], cwd=folder, capture_output=True, text=True,
        check=False, timeout=500, env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert (last[0], last[2]) == ("shown", "figures")
    assert int(last[1]) >= 1
    assert int(last[3]) >= 1
