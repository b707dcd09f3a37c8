"""Compares our versions of SciPy's functions with SciPy on every form of a matrix, with zeros and infinite entries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csc_array, csgraph, csr_array, csr_matrix

from engine.interop import scipy_csgraph

FORMS = ("csr_array", "csr_matrix", "csc_array", "coo_array", "dense", "masked", "without_mask", "nan", "inf")
METHODS = ("auto", "FW", "D", "BF", "J")


def drawn(seed: int, form: str) -> Any:
    """Return a random matrix of a form; some entries are zero or infinite."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    given = rng.random((n, n)) < rng.choice([0.15, 0.4, 0.9])
    values = rng.choice([1.0, 2.0, 3.5, 0.0, np.inf], (n, n), p=[0.3, 0.2, 0.2, 0.1, 0.2])
    np.fill_diagonal(given, False)
    rows, columns = np.nonzero(given)
    listed: tuple[npt.NDArray[np.float64], Any] = (values[given], (rows, columns))
    if form in ("csr_array", "csr_matrix", "csc_array"):
        kind: Any = {"csr_array": csr_array, "csr_matrix": csr_matrix, "csc_array": csc_array}[form]
        return kind(listed, shape=(n, n))
    if form == "coo_array":
        return csr_array(listed, shape=(n, n)).tocoo()
    fill = {"nan": np.nan, "inf": np.inf}.get(form, 0.0)
    dense = np.where(given, values, fill)
    if form == "without_mask":
        return np.ma.masked_array(dense)
    return np.ma.masked_array(dense, mask=~given) if form == "masked" else dense


def answer(function: Any, matrix: Any, **asked: Any) -> Any:
    """Return the distances, or None where the function refuses."""
    try:
        return function(matrix.copy(), **asked)
    except ValueError:
        return None


@pytest.mark.parametrize("form", FORMS)
def test_each_form_means_what_it_means_to_scipy(form: str) -> None:
    for seed, method, unweighted, directed in itertools.product(range(4), METHODS, (False, True), (True, False)):
        asked = {"method": method, "unweighted": unweighted, "directed": directed}
        matrix = drawn(seed, form)
        theirs, ours = (answer(one.shortest_path, matrix, **asked) for one in (csgraph, scipy_csgraph))
        if theirs is None:  # some of its methods take no COO array, and no masked one without a mask
            assert ours is None or form in ("coo_array", "without_mask"), (seed, asked)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=f"seed {seed}, {asked}")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mask", [False, True, None])
@pytest.mark.parametrize("values", [np.ones((3, 3)), np.zeros((3, 3)), np.full((1, 1), 5.0), np.zeros((0, 0))])
def test_masks_that_hide_nothing_or_all(values: Any, mask: bool | None, method: str) -> None:
    matrix = np.ma.array(values) if mask is None else np.ma.array(values, mask=mask)
    theirs, ours = (answer(one.shortest_path, matrix, method=method) for one in (csgraph, scipy_csgraph))
    assert ours is not None or theirs is None
    if theirs is not None:  # searches of SciPy take no matrix without a mask
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "without_mask"])
def test_some_sources_of_each_form(form: str) -> None:
    for seed, method, unweighted in itertools.product(range(4), ("auto", "D", "BF", "J"), (False, True)):
        asked = {"method": method, "unweighted": unweighted, "indices": [0]}
        matrix = drawn(seed, form)
        theirs, ours = (answer(one.shortest_path, matrix, **asked) for one in (csgraph, scipy_csgraph))
        np.testing.assert_array_equal(ours, theirs, err_msg=f"seed {seed}, {asked}")
