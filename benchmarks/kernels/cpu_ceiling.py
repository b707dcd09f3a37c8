"""How many updates c = min(c, a + b) a processor can make, everything being held in registers.

Run ``python -m benchmarks.kernels.cpu_ceiling [--threads 1 2]``.  For each type there are two ceilings: the textbook
one (an addition and a minimum of the type), and that of the instructions that the register tile of ``cpu_vector`` is
made of.  There are as many independent accumulators as the tile has; an empty piece of assembly between the updates
keeps the compiler from noticing that they are all the same, and costs no instruction.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from benchmarks.kernels.common import KINDS, RESULTS, best, clock_of, facts, markdown, save
from engine.devices.cpu.team import Team
from engine.devices.cpu.vector import TILE_ROWS, TILE_VECTORS, VECTOR_BYTES, VectorType

ACCUMULATORS: Final = TILE_ROWS * TILE_VECTORS
STEPS: Final = 500_000


@intrinsic(prefer_literal=True)
def update_registers(typing, out, steps, textbook, by_bits):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """``steps`` times ACCUMULATORS vector updates; ``out`` (two vectors) gives the operands and takes the minimum."""
    plain, bits = textbook.literal_value, by_bits.literal_value

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = VectorType(signature.args[0].dtype)
        place = builder.bitcast(
            context.make_array(signature.args[0])(context, builder, args[0]).data, kind.vector.as_pointer()
        )
        start = builder.load(place, typ=kind.vector, align=kind.bits // 8)
        one = None if plain else kind.opaque_one(builder)
        before, loop, after = builder.block, builder.append_basic_block("steps"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(ir.IntType(64))
        sums = [builder.phi(kind.vector) for _ in range(ACCUMULATORS)]
        right, following = start, []
        for i, old in enumerate(sums):
            right = _hidden(builder, kind, right)
            factor = None if bits and i % 2 == 0 else one
            total = kind.add(builder, start, right, factor)
            following.append(kind.minimum(builder, total, old, by_bits=bits))
        advanced = builder.add(step, ir.IntType(64)(1))
        builder.cbranch(builder.icmp_signed("<", advanced, args[1]), loop, after)
        step.add_incoming(ir.IntType(64)(0), before)
        step.add_incoming(advanced, loop)
        for phi, value in zip(sums, following, strict=True):
            phi.add_incoming(kind.highest(), before)
            phi.add_incoming(value, loop)
        builder.position_at_end(after)
        least = following[0]
        for value in following[1:]:
            least = kind.minimum(builder, value, least, by_bits=bits)
        builder.store(least, place, align=kind.bits // 8)
        return context.get_dummy_value()

    return types.void(out, types.intp, textbook, by_bits), codegen


def _hidden(builder: Any, kind: VectorType, value: Any) -> Any:
    """``value``, of which the optimiser knows nothing any more."""
    register = "w" if platform.machine() in ("aarch64", "arm64") else "v" if VECTOR_BYTES == 64 else "x"
    hide = ir.InlineAsm(ir.FunctionType(kind.vector, [kind.vector]), "", f"={register},0", side_effect=True)
    return builder.call(hide, [value])


@njit(nogil=True, cache=True)
def _textbook(worker, out, steps):  # type: ignore[no-untyped-def]
    update_registers(out[worker], steps, True, False)


@njit(nogil=True, cache=True)
def _textbook_by_bits(worker, out, steps):  # type: ignore[no-untyped-def]
    update_registers(out[worker], steps, True, True)


@njit(nogil=True, cache=True)
def _ours(worker, out, steps):  # type: ignore[no-untyped-def]
    update_registers(out[worker], steps, False, False)


@njit(nogil=True, cache=True)
def _ours_by_bits(worker, out, steps):  # type: ignore[no-untyped-def]
    update_registers(out[worker], steps, False, True)


#: By whether the instructions are the textbook's, and floats are compared by their bits.
KERNELS: Final = {
    (True, False): _textbook,
    (True, True): _textbook_by_bits,
    (False, False): _ours,
    (False, True): _ours_by_bits,
}


def ceiling(dtype: str, *, nonnegative: bool, threads: int, textbook: bool, seconds: float = 1.0) -> float:
    """Updates a second of ``threads`` threads."""
    kernel = KERNELS[textbook, nonnegative and dtype.startswith("float")]
    team = Team(threads)
    out = np.ones((threads, 4096), dtype)
    team.run(kernel, out, 10)
    if out[0, 0] != 2:
        raise AssertionError(f"the least of 1 + 1 came out as {out[0, 0]}")
    out[:] = 1
    took = best(lambda: team.run(kernel, out, STEPS), seconds=seconds, least=5, clock=clock_of(threads))
    team.close()
    return threads * STEPS * ACCUMULATORS * (VECTOR_BYTES // out.itemsize) / took


def measure(threads: list[int], seconds: float) -> list[dict[str, Any]]:
    """Both ceilings of every type and number of threads, in 10^9 updates a second."""
    return [
        {
            "kind": name,
            "dtype": dtype,
            "nonnegative": nonnegative,
            "threads": count,
            "textbook": ceiling(dtype, nonnegative=nonnegative, threads=count, textbook=True, seconds=seconds) / 1e9,
            "tile": ceiling(dtype, nonnegative=nonnegative, threads=count, textbook=False, seconds=seconds) / 1e9,
        }
        for name, dtype, nonnegative in KINDS
        for count in threads
    ]


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each figure")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = measure(options.threads, options.seconds)
    head = ["type", "threads", "textbook, 10^9 updates/s", "instructions of the tile"]
    table = [[r["kind"], r["threads"], r["textbook"], r["tile"]] for r in rows]
    print(markdown(f"Ceilings on {facts()['processor']}", head, table))
    print(f"\n{save('cpu-ceiling', {'ceilings': rows}, options.out)}")


if __name__ == "__main__":
    main()
