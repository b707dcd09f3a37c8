"""A kernel that others call is compiled for the types of their variables, and not once more for each constant."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

from engine.model.system import rare_collections
from tests.unit.engine.graph.test_kernels import run

CALLING = """
import numpy as np
from engine.graph.kernels import njit

@njit(nogil=True)
def add(total, more, times=1):
    return total + times * more

@njit(nogil=True)
def add_up(values):
    total, step = 0, 0
    while step < len(values):
        total = add(total, values[step], times=step)
        step += 1
    return add(total, 5), add(7, more=total)

if __name__ == "__main__":
    print(add_up(np.arange(4)), *add.overloads, sep="; ")
"""


def test_a_kernel_that_is_given_constants_and_variables_has_one_form(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(CALLING)
    found, *forms = run(tmp_path).split("; ")
    assert found == "(19, 21)"
    assert forms == ["(int64, int64, int64)", "(int64, int64, omitted(default=1))"]


def test_garbage_is_looked_for_as_usual_after_the_last_of_overlapping_compilations() -> None:
    usual, inside, leave = gc.get_threshold(), threading.Event(), threading.Event()

    def other() -> None:
        with rare_collections():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with rare_collections():
        assert gc.get_threshold()[0] >= 100_000
        thread.start()
        assert inside.wait(30)
    assert gc.get_threshold()[0] >= 100_000
    leave.set()
    thread.join()
    assert gc.get_threshold() == usual
