"""Prints answers in the same way, whether they come from a store or from a service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from service.cli.commands.output import emit, emit_json, number, table, unit_of_facts
from service.units import format_bytes
from service.views.matrix_summary import shown_facts
from storage.counted import counted
from storage.errors import InvalidRequest, NotFound, StorageFailed
from storage.files.writing import Writing
from storage.graph.units import measured_words, said_unit
from storage.number_texts import decimal_number, is_digits
from storage.semirings import SEMIRINGS

if TYPE_CHECKING:
    from engine.model.plan import Candidate
    from storage.errors import DoesNotFit
    from storage.graph.graph import Receipt

#: Suffix of the files to which paths are written.
ROUTES: Final = ".geojson"
#: The questions, each with its arguments: vertices U and V, a number K of vertices, a distance.
QUESTIONS: Final = {
    "distance": ("U", "V"), "path": ("U", "V"), "row": ("U",), "nearest": ("U", "K"), "within": ("U", "DISTANCE"),
    "also": ("U", "V"), "summary": (),
}  # fmt: skip


def check_question(question: str, vertices: Sequence[str], out: Path | None = None) -> None:
    """Refuse a question that cannot be asked.

    Args:
        question: a name in ``QUESTIONS``.
        vertices: the arguments of the question as typed: vertices, and K or DISTANCE if the question takes one.
        out: the file of the answer; None to print the answer.

    Raises:
        InvalidRequest: no such question, too few or too many arguments, or ``out`` cannot hold the answer.
        NotFound: the folder of ``out`` does not exist.
    """
    if question not in QUESTIONS:
        raise InvalidRequest(f"there is no query {question!r}; ask for {', '.join(QUESTIONS)}", field="query")
    wanted = QUESTIONS[question]
    kind = "arguments" if {"K", "DISTANCE"} & set(wanted) else "vertices"
    if len(vertices) != len(wanted):
        usage = " ".join(["apsp query STORE", question, *wanted])
        raise InvalidRequest(f"{usage}: {len(vertices)} {kind} given, {len(wanted)} needed", field="vertices")
    if out is None:
        return
    if question != "path":
        message = f"-o writes a path as a line of GeoJSON; for {question} redirect what is printed, or see apsp export"
        raise InvalidRequest(message, field="-o")
    if out.suffix.lower() != ROUTES:
        raise InvalidRequest(f"-o: {out.name} should end in {ROUTES}", field="-o")
    if not out.absolute().parent.is_dir():
        raise NotFound(f"-o: the folder {out.absolute().parent} does not exist")


def save_path(feature: Mapping[str, Any], out: Path, as_json: bool) -> None:
    """Write a shortest path as a file of GeoJSON, and print what it contains.

    Args:
        feature: the path as a GeoJSON feature, made by ``service.views.path_feature``.
        out: the file, which is replaced when the new one is complete.
        as_json: whether to print one JSON object instead of text.

    Raises:
        StorageFailed: the file cannot be written.
    """
    told, data = feature["properties"], json.dumps(feature, allow_nan=False).encode()
    partial = out.with_name(f".{out.name}.partial")
    with Writing(out, "query"):
        try:
            partial.write_bytes(data)
            partial.replace(out)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageFailed(f"cannot write {out}: {error.strerror or error}") from error
    if as_json:
        emit_json(
            {"file": str(out), **{name: told[name] for name in ("source", "target", "distance", "unit", "vertices")}}
        )
    elif feature["geometry"] is None and told["distance"] is None:
        emit(f"{out}: no path from {told['source']} to {told['target']}, so the feature has no line")
    else:
        unit = f" {told['unit']}" if told["unit"] else ""
        left = told.get("without_coordinates", [])
        more = f"; {len(left):,} of them have no coordinates, and the line leaves them out" if left else ""
        emit(f"{out}: {counted(len(told['vertices']), 'vertices')}, {_text(told['distance'])}{unit}{more}")


def count_of(text: str) -> int:
    """Return the K of ``nearest``.  Raises InvalidRequest if it is no whole number from 1."""
    if not (is_digits(text) and int(text)):
        raise InvalidRequest(f"nearest takes a number of vertices from 1, found {text!r}", field="query")
    return int(text)


def limit_of(text: str) -> float:
    """Return the distance of ``within``.  Raises InvalidRequest if it is no number."""
    try:
        return decimal_number(text, infinite=True)
    except ValueError as error:
        raise InvalidRequest(f"within takes a distance: {error}", field="query") from None


def show_distance(answer: dict[str, Any], as_json: bool, unit: str | None = None) -> None:
    """Print one distance, with its unit if that is known."""
    if as_json:
        emit_json({**answer, **_unit(unit)})
    else:
        text = value_text(answer["distance"], answer.get("semiring"), itself=answer["reachable"])
        emit(text + (f" {unit}" if unit and answer["distance"] is not None else ""))


def show_also(answer: dict[str, Any], as_json: bool) -> None:
    """Print the distance of a pair and the sums along its path, each on a line of its own."""
    if as_json:
        emit_json(answer)
    else:
        rows = [("distance", answer["distance"]), *answer["also"].items()]
        emit([f"{name}\t{_text(value)}" for name, value in rows])


def show_pair(question: str, answer: dict[str, Any], as_json: bool, unit: str | None) -> None:
    """Print the answer to a question about a pair: ``distance``, ``path`` or ``also``."""
    if question == "also":
        show_also(answer, as_json)
    elif question == "path":
        show_path(answer, as_json, unit)
    else:
        show_distance(answer, as_json, unit)


def _unit(unit: str | None) -> dict[str, str]:
    return {"unit": unit} if unit else {}


def _measured(name: str, unit: str | None) -> str:
    """Return the name of a column of distances, with the unit if it is known."""
    return f"{name} ({unit})" if unit else name


def show_path(answer: dict[str, Any], as_json: bool, unit: str | None = None) -> None:
    """Print one path, with one vertex on each line."""
    if as_json:
        emit_json({**answer, **_unit(unit)})
    elif not answer["reachable"]:
        emit(f"no path from {answer['source']} to {answer['target']}")
    else:
        weights, semiring = answer["weights"], answer.get("semiring")
        if semiring is None:
            sums: Iterable[Any] = accumulate(weights, initial=type(answer["length"])(0))
        else:
            from engine.api.semirings.routes import path_values

            sums = path_values(semiring, weights)
        rows = zip(answer["vertices"], ["-", *map(number, weights)], sums, strict=True)
        head = f"vertex\t{_measured('weight', unit)}\t{_measured('value' if semiring else 'length', unit)}"
        emit([head, *(f"{name}\t{weight}\t{_rounded(length)}" for name, weight, length in rows)])


def _rounded(length: float) -> str:
    """Return a sum of weights without the rounding error of binary fractions: 0.3 and not 0.30000000000000004."""
    return str(length) if isinstance(length, int) else f"{length:.12g}"


def show_row(answer: dict[str, Any], as_json: bool, unit: str | None = None) -> None:
    """Print a row, with one target on each line."""
    if as_json:
        emit_json({**answer, **_unit(unit)})
    else:
        emit(_row_lines(answer, unit))


def _row_lines(answer: Mapping[str, Any], unit: str | None) -> Iterator[str]:
    semiring = answer.get("semiring")
    yield f"target\t{_measured('value' if semiring else 'distance', unit)}"
    for label, distance in zip(answer["targets"], answer["distances"], strict=True):
        yield f"{label}\t{value_text(distance, semiring, itself=label == answer['source'])}"


def _text(distance: float | None) -> str:
    return "inf" if distance is None else number(distance)


def value_text(value: float | None, semiring: str | None, *, itself: bool) -> str:
    """Return a distance as text, or a value of another semiring; None stands for no path, or for an infinite value.

    Args:
        value: the distance or value.
        semiring: the semiring of the value; None for distances.
        itself: whether None stands for the infinite value from a vertex to itself, and not for a missing path.
    """
    if semiring is None or value is not None:
        return _text(value)
    return number(SEMIRINGS[semiring].itself) if itself else "no path"


def show_summary(answer: dict[str, Any], name: str, as_json: bool) -> None:
    """Print the facts of a result, and its summary.

    Args:
        answer: shape, dtype, directed and summary of the matrix.
        name: what the matrix is called in the first line.
        as_json: whether to print one JSON object instead of text.
    """
    if as_json:
        emit_json(answer)
        return
    rows, columns = answer["shape"]
    kind = "directed" if answer["directed"] else "undirected"
    said, semiring = said_unit(answer["unit"]), answer.get("semiring")
    words = measured_words(said, unit_of_facts(answer) or "")
    unit = f", distances {words}" if words else ""
    if semiring is not None:
        unit = f", {SEMIRINGS[semiring].value} ({semiring}){f' in {said}' if said else ''}"
    emit([f"{name}: {rows:,} x {columns:,}, {answer['dtype']}, {kind}{unit}", *summary_lines(answer["summary"])])


def summary_lines(summary: Mapping[str, Any], unit: str | None = None) -> list[str]:
    """Return the summary of a matrix in aligned lines, with the unit of its distances if that is known."""
    facts = [*shown_facts(summary), *([("unit", unit)] if unit else [])]
    return table(facts, indent="  ")


def show_refusal(refusal: DoesNotFit, graph: str, receipt: Receipt, *, as_json: bool) -> None:
    """Print the candidates of a plan that was refused.

    Args:
        refusal: the error, which holds the candidates.
        graph: the graph file.
        receipt: the receipt of the reader of the graph.
        as_json: whether to print one JSON object instead of a table.
    """
    candidates = cast("tuple[Candidate, ...]", refusal.candidates)
    if not as_json:
        emit(table_of(candidates))
        return
    said = {"graph": graph, "notes": receipt.notes, "plan": None, "refused": str(refusal)}
    emit_json({**said, **refusal.details(), "candidates": [candidate.to_dict() for candidate in candidates]})


def table_of(candidates: Iterable[Candidate]) -> list[str]:
    """Return a table of candidates, with the reasons why some were rejected."""
    head = ("candidate", "device", "tier", "memory", "GPU memory", "disk", "seconds", "")
    rows = [
        (
            candidate.algorithm,
            candidate.device,
            candidate.tier,
            format_bytes(candidate.memory),
            format_bytes(candidate.device_memory) if candidate.device_memory else "-",
            format_bytes(candidate.disk),
            f"{candidate.seconds:.3g}",
            "chosen" if candidate.rejected is None else candidate.rejected,
        )
        for candidate in candidates
    ]
    return table([head, *rows], right=(3, 4, 5, 6))
