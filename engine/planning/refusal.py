"""Refusals: which limit binds, and the least budgets with which the same job would be planned.

A job for which no candidate fits is planned again with larger budgets: with more of one resource if that suffices, else
with more of several resources.  Each tier is tried separately: with the least budget the matrix is streamed from the
store, and with a larger budget it may stay in memory.  In each step a budget grows to the least number of bytes that a
candidate needs, until a candidate fits.  A larger budget never makes a candidate need less, so the first budget that
suffices is the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.model.plan import Candidate
from engine.model.problem import Machine, Options
from engine.planning.constants import RESIDENT_SPARE
from engine.planning.cost import Setting
from engine.planning.cost_distributed import lacking
from storage.errors import DoesNotFit

#: Plans a problem again: takes setting and options, and returns all candidates, which say whether they fit.
Replan = Callable[[Setting, Options], list[Candidate]]

#: The resources, in the order in which their budgets grow and remedies name them.
MEMORY: Final = "memory"
DEVICE_MEMORY: Final = "device memory"
WORKER_MEMORY: Final = "worker memory"
DISK: Final = "disk"
RESOURCES: Final = (MEMORY, DEVICE_MEMORY, WORKER_MEMORY, DISK)
_TIERS: Final = ("store", "device", "host")


@dataclass(frozen=True)
class Shortage:
    """A resource of a machine that is too small for a candidate.

    Attributes:
        resource: its name, one of ``RESOURCES``.
        needed: bytes that the candidate needs.
        available: bytes that may be used.
        text: resource and bytes in words.
    """

    resource: str
    needed: int
    available: int
    text: str


@dataclass(frozen=True)
class Remedy:
    """Budgets with which a job that was refused would be planned.

    Attributes:
        budgets: the bytes needed of each resource whose budget has to grow, by the name of the resource.
        candidate: the candidate that the plan would select.
    """

    budgets: dict[str, int]
    candidate: Candidate


def shortages(candidate: Candidate, setting: Setting) -> Iterator[Shortage]:
    """Yield what a candidate lacks on this machine."""
    machine = setting.machine
    if machine.cuda is not None and candidate.device_memory > machine.cuda.memory:
        yield _shortage(DEVICE_MEMORY, candidate.device_memory, machine.cuda.memory, "of GPU memory", "may be used")
    if (short := lacking(candidate, setting)) is not None:
        yield _shortage(WORKER_MEMORY, *short, "of each worker's memory", "may be used")
    if candidate.memory > machine.memory:
        yield _shortage(MEMORY, candidate.memory, machine.memory, "of memory", "may be used")
    if machine.disk is not None and candidate.disk > machine.disk:
        yield _shortage(DISK, candidate.disk, machine.disk, "of disk", "are free")


def _shortage(resource: str, needed: int, available: int, kind: str, state: str) -> Shortage:
    return Shortage(resource, needed, available, f"needs {gib(needed)} {kind}, {gib(available)} {state}")


def refusal(candidates: Sequence[Candidate], setting: Setting, options: Options, replan: Replan) -> DoesNotFit:
    """Return the error for a job for which no candidate fits: it names the limit that binds, and the least budgets that
    suffice.

    Args:
        candidates: all candidates; the error says which of them the options excluded.
        setting: problem, machine and type.
        options: the user's options.
        replan: plans the same problem with another setting.
    """
    found = remedies(setting, options, replan)
    best = found[0]
    resource = max(best.budgets, key=lambda name: best.budgets[name] / max(1, _available(setting.machine, name)))
    needed, available = best.budgets[resource], _available(setting.machine, resource)
    words = [_words(remedy, setting.machine, options) for remedy in found]
    others = [f"with {text}" for text in _relaxed(setting, options, replan)]
    headline = _headline(resource, best, available)
    return DoesNotFit(
        f"{headline}; it fits {', or '.join([*words, *others])}",
        resource=resource,
        needed=needed,
        available=available,
        candidates=[c if c.rejected else replace(c, rejected="was not asked for") for c in candidates],
        remedies=[_document(remedy, setting.machine, options) for remedy in found],
        reason=f"{headline}; it fits {', or '.join(others)}" if others else headline,
    )


def remedies(setting: Setting, options: Options, replan: Replan) -> list[Remedy]:
    """Return budgets that suffice, in ascending order of growth.

    Remedies with one larger budget are returned if there are any, else remedies with several larger budgets.  A remedy
    is left out if a faster candidate also fits its budgets, because the faster candidate would be planned.

    Args:
        setting: problem, machine and type, where no candidate fits.
        options: the user's options.
        replan: plans the same problem with another setting.
    """
    search = _Search(setting, options, replan)
    found = [remedy for name in RESOURCES for remedy in search.alone(name)] or search.together()
    ordered = sorted(found, key=lambda remedy: (_growth(remedy, setting.machine), remedy.candidate.seconds))
    return [remedy for i, remedy in enumerate(ordered) if not any(_planned(one, remedy) for one in ordered[:i])]


def _planned(one: Remedy, other: Remedy) -> bool:
    """Return whether the budgets of ``other`` suffice for the candidate of ``one``, and this candidate is no slower."""
    suffices = all(size <= other.budgets.get(name, -1) for name, size in one.budgets.items())
    return suffices and one.candidate.seconds <= other.candidate.seconds


class _Search:
    """The search for budgets that suffice; no setting is planned twice."""

    def __init__(self, setting: Setting, options: Options, replan: Replan) -> None:
        self._setting, self._options, self._replan = setting, options, replan
        self._planned: dict[tuple[int, ...], list[Candidate]] = {}

    def alone(self, name: str) -> Iterator[Remedy]:
        """Yield a remedy for each tier that becomes possible with more of one resource."""
        for tier in _TIERS:
            found = self._least(self._setting, name, tier)
            if found is not None and self._grown(found):
                yield Remedy(self._grown(found), self._best(found, tier))

    def together(self) -> list[Remedy]:
        """Return a remedy for each tier that becomes possible with more of several resources, the least host memory
        first.
        """
        found = []
        for tier in _TIERS:
            setting: Setting | None = self._setting
            for done, name in enumerate(RESOURCES):
                setting = setting and self._least(setting, name, tier, set(RESOURCES[done + 1 :]))
            if setting is not None:
                found.append(Remedy(self._grown(setting), self._best(setting, tier)))
        return found

    def _least(
        self, setting: Setting, name: str, tier: str, ignored: set[str] | frozenset[str] = frozenset()
    ) -> Setting | None:
        """Return ``setting`` with just enough of a resource that a candidate of a tier fits; None if none ever does.

        Args:
            setting: the setting with the budgets to begin with.
            name: the resource that grows.
            tier: the tier.
            ignored: resources that the candidate may still lack.
        """
        # a larger budget allows larger batches, so candidates then need more; but two batches take at most a quarter of
        # the memory, so the need grows by less than the budget, and few steps suffice
        for _ in range(64):
            lacks = [
                {s.resource: s.needed for s in shortages(c, setting) if s.resource not in ignored}
                for c in self._pool(setting)
                if c.tier == tier
            ]
            if not all(lacks):
                return setting if lacks else None
            needs = [short[name] for short in lacks if set(short) == {name}]
            if not needs:
                return None
            setting = replace(setting, machine=_with(setting.machine, name, min(needs)))
        return None

    def _pool(self, setting: Setting) -> list[Candidate]:
        key = tuple(_available(setting.machine, name) for name in RESOURCES)
        if key not in self._planned:
            self._planned[key] = self._replan(setting, self._options)
        return self._planned[key]

    def _best(self, setting: Setting, tier: str) -> Candidate:
        fitting = [c for c in self._pool(setting) if c.tier == tier and c.feasible]
        return min(fitting, key=lambda c: c.seconds)

    def _grown(self, setting: Setting) -> dict[str, int]:
        """Return the budgets that are larger in ``setting`` than in the refused job's setting."""
        now, before = ({name: _available(s.machine, name) for name in RESOURCES} for s in (setting, self._setting))
        return {name: now[name] for name in RESOURCES if now[name] > before[name]}


def _available(machine: Machine, name: str) -> int:
    if name == DISK:
        return machine.disk or 0
    if name == DEVICE_MEMORY:
        return 0 if machine.cuda is None else machine.cuda.memory
    if name == WORKER_MEMORY:
        workers = machine.workers
        return 0 if workers is None else workers.memory if workers.device == "cpu" else workers.host_memory
    return machine.memory


def _with(machine: Machine, name: str, needed: int) -> Machine:
    """Return the machine with at least ``needed`` bytes of a resource, rounded up to a number that a message can print
    exactly.

    Host memory gets some bytes more, because two processes that plan the same job hold slightly different amounts.
    """
    if name == DISK:
        return replace(machine, disk=needed)
    if name == MEMORY:
        return replace(machine, memory=round_up(needed + RESIDENT_SPARE + machine.resident // 50))
    size, workers = round_up(needed), machine.workers
    if name == DEVICE_MEMORY and machine.cuda is not None:
        machine = replace(machine, cuda=replace(machine.cuda, memory=size))
    if workers is None:
        return machine
    if name == DEVICE_MEMORY or workers.device == "cpu":
        return replace(machine, workers=replace(workers, memory=size))
    return replace(machine, workers=replace(workers, host_memory=size))


def _growth(remedy: Remedy, machine: Machine) -> float:
    """Return the product, over all budgets that grow, of (bytes needed) / (bytes available)."""
    return math.prod(size / max(1, _available(machine, name)) for name, size in remedy.budgets.items())


def _relaxed(setting: Setting, options: Options, replan: Replan) -> list[str]:
    """Return options, in words, with which the job fits in its budgets; an empty list if there are none."""
    for name, others in (
        ("device", replace(options, device="auto")),
        ("algorithm", replace(options, algorithm="auto")),
    ):
        fitting = [] if others == options else [c for c in replan(setting, others) if c.feasible]
        if fitting:
            best = min(fitting, key=lambda c: c.seconds)
            return [f"--{name} auto as it is ({_way(best)})"]
    return []


def _headline(resource: str, remedy: Remedy, available: int) -> str:
    needed, least = remedy.budgets[resource], remedy.candidate.algorithm
    need, have = f"{needed:,} bytes ({gib(needed)})", f"{available:,} ({gib(available)})"
    if resource == DISK:
        return f"the matrix does not fit on the disk: {need} are needed, {have} are free"
    if resource == DEVICE_MEMORY:
        return f"the matrix does not fit on the GPU: {need} are needed, {have} may be used"
    if resource == WORKER_MEMORY:
        return f"rounds do not fit the workers: each needs {need} of memory of its own, {have} may be used"
    return f"the job does not fit in memory: {least} needs the least, {need}, and {have} may be used"


def _words(remedy: Remedy, machine: Machine, options: Options) -> str:
    """Return a remedy in words: options that can be typed, and resources that the machine has to have."""
    typed, there = [], []
    each = " on each GPU" if machine.cuda is not None and machine.cuda.count > 1 else ""
    for name, size in remedy.budgets.items():
        option, amount = option_for(name, size, machine, options), gib(size)
        if option is not None:
            typed.append(f"{option} {amount.replace(' ', '')}")
        else:
            kind = {MEMORY: "memory", DEVICE_MEMORY: f"GPU memory{each}", DISK: "the disk"}[name]
            there.append(f"{amount} of {kind}")
    parts = [f"with {' '.join(typed)}"] if typed else []
    if there:
        parts.append(f"where {' and '.join(there)} are free")
    return f"{' '.join(parts)} ({_way(remedy.candidate)})"


def option_for(name: str, size: int, machine: Machine, options: Options) -> str | None:
    """Return the option of the command line that grants a budget; None if no option limited the budget, or if the
    machine has less than ``size`` bytes.

    Args:
        name: the resource.
        size: bytes that are to be granted.
        machine: the machine on which the job was refused.
        options: the user's options; a budget that is not set means all that is free.
    """
    if name == WORKER_MEMORY:
        return "apsp worker --memory"
    if machine.workers is not None and name == DEVICE_MEMORY:
        return None
    asked, free = {
        MEMORY: (options.memory, machine.free),
        DEVICE_MEMORY: (options.device_memory, None if machine.cuda is None else machine.cuda.free),
    }.get(name, (None, None))
    if asked is None or (free is not None and size > free):
        return None
    return f"--{name.replace(' ', '-')}"


def field_of(option: str | None) -> str | None:
    """Return the field of ``Options`` that an option of the command line sets; any other text is returned unchanged."""
    return option.removeprefix("--").replace("-", "_") if option is not None and option.startswith("--") else option


def _way(candidate: Candidate) -> str:
    """Return the algorithm, the device, the tier and the seconds of a candidate in words."""
    device = " on the GPU" if candidate.device == "cuda" else ""
    where = {"store": ", streamed from the store", "host": ", streamed from host memory"}
    tier = where.get(candidate.tier, "") if candidate.streaming is not None else ""
    return f"{candidate.algorithm}{device}{tier}, {about_seconds(candidate.seconds)}"


def _document(remedy: Remedy, machine: Machine, options: Options) -> dict[str, object]:
    """Return a remedy as JSON types."""
    budgets = [
        {
            "resource": name,
            "needed": size,
            "available": _available(machine, name),
            "option": field_of(option_for(name, size, machine, options)),
        }
        for name, size in remedy.budgets.items()
    ]
    best = remedy.candidate
    way = {"algorithm": best.algorithm, "device": best.device, "tier": best.tier, "seconds": best.seconds}
    return {"budgets": budgets, **way}


def round_up(size: int) -> int:
    """Round ``size`` bytes up to the next number that :func:`gib` prints in full."""
    unit = 1
    while size >= 1024 * unit and unit < 2**40:
        unit *= 1024
    step = unit / 10.0 ** max(0, 3 - len(str(size // unit)))
    return max(size, math.floor(math.ceil(size / step) * step))


def seconds_text(seconds: float) -> str:
    """Return seconds as text with about three digits, such as ``0.012 s`` or ``12,300 s``."""
    if 0 < seconds < 0.001:
        return "less than 0.001 s"
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def about_seconds(seconds: float) -> str:
    """Return predicted seconds as text: ``about 0.012 s``, or ``less than 0.001 s``."""
    text = seconds_text(seconds)
    return text if text.startswith("less") else f"about {text}"


def gib(size: int) -> str:
    """Return a number of bytes as text with a binary unit, such as ``1.5 GiB``."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
