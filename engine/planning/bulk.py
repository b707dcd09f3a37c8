"""Plans many graphs at once: which are solved together, on which device, with how much padding, and why.

There are three ways to solve a graph of a bulk:

- *stacked*: graphs of one working type, padded to one size, are closed by one launch on the GPU;
- *beside*: each graph is solved by one thread of the CPU, and all threads solve graphs at the same time;
- *alone*: graphs are solved one after the other with the whole machine, planned as ``apsp solve`` plans them.

The plan of a small graph uses only predicted costs.  Nothing is measured, so planning takes less time than the solve.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from engine.model.device_layout import SINGLE, SLACK
from engine.model.dtypes import WORK_TYPES, WorkType, relaxes_reduced
from engine.model.plan import Plan
from engine.model.problem import Machine, Options, Problem, with_threads
from engine.planning.constants import ALONE_FROM, STACK_BYTES, STACK_EFFICIENCY, STACK_LAUNCH, STACK_RATE, STORE_SECONDS
from engine.planning.planner import choose
from engine.planning.refusal import gib
from storage.errors import ApspError, InvalidRequest

#: Matrices are padded to multiples of TILE, the side of a tile of the kernel that closes a small matrix in one launch;
#: matrices of at most SMALLEST vertices are padded to SMALLEST.
TILE: Final = 64
SMALLEST: Final = 32

#: The facts that all graphs of a stack share: the working type, and whether no arc is negative.
Kind = tuple[str, bool]


@dataclass(frozen=True)
class Group:
    """Graphs that are solved in the same way.

    Attributes:
        way: ``stacked``, ``beside`` or ``alone``.
        device: ``cuda`` or ``cpu``; ``auto`` where each graph's own plan decides.
        dtype: working type.
        side: number of rows of every padded matrix (``stacked``), else of the largest matrix.
        nonnegative: no arc is negative.
        members: the indices of the graphs in the bulk.
        launch: number of graphs in one launch (``stacked``), else number of graphs that are solved at the same time.
        seconds: predicted time, stores included.
        reason: why the graphs are solved in this way, in a sentence.
        device_memory: bytes of device memory that one launch takes.
        waste: share of the work that is spent on padding.
    """

    way: str
    device: str
    dtype: str
    side: int
    nonnegative: bool
    members: tuple[int, ...]
    launch: int
    seconds: float
    reason: str
    device_memory: int = 0
    waste: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the group as JSON types; ``members`` becomes the number of members."""
        facts = asdict(self)
        return {"graphs": len(facts.pop("members")), **facts}


@dataclass(frozen=True)
class BulkPlan:
    """The plan of a bulk.

    Attributes:
        groups: the groups.
        plans: by the index of the graph in the bulk, the plan for one thread's share of the machine, if the graph fits
            there.  Graphs that are solved alone are planned again when they are solved.
        refused: by the index of the graph in the bulk, the error of every graph that cannot be solved.
    """

    groups: tuple[Group, ...]
    plans: Mapping[int, Plan]
    refused: Mapping[int, ApspError]

    @property
    def seconds(self) -> float:
        """The predicted seconds of all groups."""
        return sum(group.seconds for group in self.groups)


def padded_side(n: int) -> int:
    """Return the side to which a graph of ``n`` vertices is padded in a stack: a multiple of the kernel's tiles."""
    return SMALLEST if n <= SMALLEST else -(-n // TILE) * TILE


def plan_bulk(problems: Mapping[int, Problem], machine: Machine, options: Options, *, stores: bool) -> BulkPlan:
    """Group the graphs of a bulk.

    Args:
        problems: the problem of each graph, by the index of the graph in the bulk.
        machine: the machine; ``cuda`` is None where no GPU is to be used.
        options: the options of every graph; sources, targets and a cutoff are refused, and so are workers.
        stores: whether each graph gets a store.

    Raises:
        InvalidRequest: the options suit no graph, for example because the machine lacks the device.
    """
    for name in ("sources", "targets", "cutoff"):
        if getattr(options, name) is not None:
            raise InvalidRequest(f"{name} cannot be chosen for many graphs at once", field=name)
    if options.executor != "local":
        raise InvalidRequest("many graphs at once are solved by this process: executor local", field="executor")
    if options.device == "cuda" and machine.cuda is None:
        raise InvalidRequest(f"device cuda was asked for, but {machine.no_cuda}", field="device")
    share = _share(machine)
    plans: dict[int, Plan] = {}
    refused: dict[int, ApspError] = {}
    for index, problem in problems.items():
        try:
            plans[index] = choose(problem, share, replace(options, device="cpu"))
        except ApspError as error:
            refused[index] = error
    alone = {i for i, plan in plans.items() if plan.seconds > ALONE_FROM}
    # a graph that does not fit in one thread's share of the memory may fit in the whole memory
    alone |= {i for i, error in refused.items() if error.kind == "does-not-fit"}
    refused = {i: error for i, error in refused.items() if i not in alone}
    stacks = _stacks({i: problems[i] for i in plans}, plans, machine, options)
    selected, beside = [], {i for i in plans if i not in alone}
    for stack in stacks:
        on_cpu = sum(plans[i].seconds for i in stack.members) / machine.threads
        if options.device == "cuda" or stack.seconds < on_cpu:
            selected.append(_explained(stack, on_cpu, options))
            beside -= set(stack.members)
            alone -= set(stack.members)
    if options.device == "cuda":
        alone, beside = alone | beside, set()
    groups = [*selected, *_beside(beside, plans, problems, machine), *_alone(alone, plans, problems, options)]
    if stores:
        workers = min(machine.threads, max(1, len(problems)))
        groups = [replace(g, seconds=g.seconds + STORE_SECONDS * len(g.members) / workers) for g in groups]
    return BulkPlan(tuple(groups), plans, refused)


def _share(machine: Machine) -> Machine:
    """Return one thread's share of the machine, for graphs that the threads solve at the same time, one each."""
    own = max(0, machine.memory - machine.resident) // machine.threads
    return replace(with_threads(machine, 1), memory=machine.resident + own, cuda=None)


def _stacks(
    problems: Mapping[int, Problem], plans: Mapping[int, Plan], machine: Machine, options: Options
) -> list[Group]:
    """Group, by working type and padded size, the graphs that can be stacked.  Adjacent sizes are joined where that
    saves time."""
    device = machine.cuda
    if device is None or options.device == "cpu" or options.max_hops is not None or options.algorithm != "auto":
        return []
    classes: dict[Kind, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, problem in problems.items():
        kind, side = WORK_TYPES[plans[index].dtype], padded_side(problem.n)
        fits = stack_bytes(side, kind) <= device.memory
        if problem.whole and problem.n <= SINGLE and fits and problem.max_hops is None:
            signed = problem.negative and not relaxes_reduced(kind, problem)
            classes[kind.name, not signed][side].append(index)
    groups = []
    for (name, nonnegative), sizes in classes.items():
        kind, rate = WORK_TYPES[name], device.relax_rate[name] * STACK_EFFICIENCY
        for side, members in _joined(sizes, rate):
            most = max(1, min(STACK_BYTES // _matrix(side, kind), _fitting(side, kind, device.memory)))
            launch = min(most, len(members))
            work = len(members) * side**3
            useful = sum(problems[i].n ** 3 for i in members)
            moved, launches = 2 * len(members) * _matrix(side, kind), -(-len(members) // launch)
            seconds = work / rate + moved / STACK_RATE + launches * STACK_LAUNCH
            groups.append(
                Group(
                    "stacked", "cuda", name, side, nonnegative, tuple(members), launch, seconds, "",
                    stack_bytes(side, kind, launch), 1 - useful / work,
                )
            )  # fmt: skip
    return groups


def _joined(sizes: Mapping[int, Sequence[int]], rate: float) -> list[tuple[int, list[int]]]:
    """Return groups of graphs, each as a padded side and its members.

    A size is joined with the next larger size where padding costs less than a launch.
    """
    found: list[tuple[int, list[int]]] = []
    for side in sorted(sizes):
        before, members = found[-1] if found else (side, [])
        if members and len(members) * (side**3 - before**3) / rate < STACK_LAUNCH:
            found[-1] = (side, [*members, *sizes[side]])
        else:
            found.append((side, list(sizes[side])))
    return found


def _matrix(side: int, kind: WorkType) -> int:
    return side * side * kind.itemsize


def stack_bytes(side: int, kind: WorkType, graphs: int = 1) -> int:
    """Return the bytes of device memory of a stack: its matrices, a flag for each tile, and SLACK.

    Args:
        side: rows of a padded matrix.
        kind: the working type.
        graphs: number of matrices.
    """
    tile = min(side, TILE)
    return graphs * (_matrix(side, kind) + 4 * (side // tile) ** 2) + SLACK


def _fitting(side: int, kind: WorkType, memory: int) -> int:
    one = stack_bytes(side, kind) - SLACK
    return max(1, (memory - SLACK) // one)


def _explained(stack: Group, on_cpu: float, options: Options) -> Group:
    more = f"{100 * stack.waste:.0f} % of the work is padding, {gib(stack.device_memory)} of GPU memory a launch"
    if options.device == "cuda":
        return replace(stack, reason=f"the GPU was asked for; {more}")
    return replace(stack, reason=f"the CPU would take {on_cpu:.3g} s, the GPU {stack.seconds:.3g} s; {more}")


def _beside(
    members: Iterable[int], plans: Mapping[int, Plan], problems: Mapping[int, Problem], machine: Machine
) -> list[Group]:
    by_type: dict[str, list[int]] = defaultdict(list)
    for index in sorted(members):
        by_type[plans[index].dtype].append(index)
    groups = []
    for name, some in by_type.items():
        launch = min(machine.threads, len(some))
        groups.append(
            Group(
                "beside", "cpu", name, max(problems[i].n for i in some), all(not problems[i].negative for i in some),
                tuple(some), launch, sum(plans[i].seconds for i in some) / launch,
                f"each takes one thread less than {ALONE_FROM:g} s, so {launch} at a time",
            )
        )  # fmt: skip
    return groups


def _alone(
    members: Iterable[int], plans: Mapping[int, Plan], problems: Mapping[int, Problem], options: Options
) -> list[Group]:
    some = sorted(members)
    if not some:
        return []
    known = [plans[i] for i in some if i in plans]
    names = sorted({plan.dtype for plan in known}) or ["auto"]
    why = (
        "no launch for many graphs suits them"
        if options.device == "cuda"
        else f"each takes one thread {ALONE_FROM:g} s or more"
    )
    return [
        Group(
            "alone", options.device, "/".join(names), max(problems[i].n for i in some),
            all(not problems[i].negative for i in some), tuple(some), 1,
            sum(plan.seconds for plan in known), f"{why}: one after the other, each with its own plan",
        )
    ]  # fmt: skip
