"""Every benchmark can be imported without what it compares with and without a GPU, and says how it is called.

What they take from the packages is checked by mypy, which reads them like the packages.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import benchmarks

ROOT = Path(__file__).parents[3]
#: Kernels of other libraries, and the library without which their modules cannot be imported.
OTHERS = {"benchmarks.kernels.torch_and_triton": "torch"}
#: In one process of its own, in which no benchmark finds a GPU's library or a peer.
PROGRAM = """
import contextlib, importlib, io, sys

for missing in ("cupy", "igraph", "networkit", "pandana", "routingkit_cch", "rustworkx", "torch", "triton",
                "tropical_gemm"):
    sys.modules[missing] = None
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, "cannot be imported:", error.name)
        continue
    if not hasattr(module, "argparse"):
        continue
    sys.argv, said = [name, "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            module.main()
    except SystemExit as ended:
        good = ended.code == 0 and said.getvalue().startswith("usage: ")
    else:
        good = False
    if not good:
        print(name, "does not answer --help")
"""


def names() -> list[str]:
    found = pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    return [each.name for each in found if not each.ispkg]


def test_every_benchmark_is_imported_and_answers_help() -> None:
    assert len(names()) > 50
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names()], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [f"{name} cannot be imported: {library}" for name, library in OTHERS.items()]
