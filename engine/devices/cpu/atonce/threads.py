"""Threads of the operating system that run a kernel together, begun and ended by compiled code.

Starting a thread of Python takes about 0.1 ms, in which no other one runs Python, and each kernel that it calls takes
Python's lock twice.  These threads know nothing of Python, so they are begun in a tenth of that, and a solve of 1,000
rows takes the lock twice in all.  None outlives the call, so there is none to end when a process forks (decision 167).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import signature as signature_of
from numba.extending import intrinsic

#: Most threads of a call.
MOST: Final = 512
#: Bytes of the stack of each thread; kernels keep arrays elsewhere.
STACK: Final = 2**20
#: Bytes that hold the attributes of a thread on every system.
ATTRIBUTES: Final = 128
#: The number of the clock that only goes forwards.
_CLOCK: Final = 6 if sys.platform == "darwin" else 1


@intrinsic
def seconds_now(typingctx):  # type: ignore[no-untyped-def]
    """Return the seconds of the clock of ``time.perf_counter``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word, real = ir.IntType(64), ir.DoubleType()
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), word.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        place = cgutils.alloca_once(builder, word, size=2)
        builder.call(function, [ir.Constant(ir.IntType(32), _CLOCK), place])
        whole, part = (
            builder.sitofp(builder.load(builder.gep(place, [ir.Constant(word, k)])), real) for k in range(2)
        )
        return builder.fadd(whole, builder.fmul(part, ir.Constant(real, 1e-9)))

    return types.float64(), codegen


@intrinsic
def run_in_threads(typingctx, kernel, threads, given):  # type: ignore[no-untyped-def]
    """Call ``kernel(given)`` in the calling thread and in new ones at the same time, and wait for all of them.

    If the system refuses a thread, fewer run.

    Args:
        typingctx: numba's typing context.
        kernel: compiled by numba; what it returns is ignored.
        threads: int64, the number of threads, the calling one included.
        given: a tuple.

    Returns:
        int64: how many calls have failed, as by lack of memory.
    """
    kernel.get_call_type(typingctx, (given,), {})

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        compiled = signature.args[0].dispatcher.get_compile_result(signature_of(types.none, given))
        context.active_code_library.add_linking_library(compiled.library)
        word, byte, i32 = ir.IntType(64), ir.IntType(8).as_pointer(), ir.IntType(32)
        # what all threads share: the number of failures, then the tuple
        shared = cgutils.alloca_once(builder, ir.LiteralStructType([word, args[2].type]))
        failures = cgutils.gep_inbounds(builder, shared, 0, 0)
        builder.store(ir.Constant(word, 0), failures)
        builder.store(args[2], cgutils.gep_inbounds(builder, shared, 0, 1))
        body, opaque = _thread_body(context, builder.module, compiled, given, shared.type), builder.bitcast(shared, byte)

        def library(name: str, result: Any, *inputs: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, inputs), name)

        attributes = builder.bitcast(cgutils.alloca_once(builder, word, size=ATTRIBUTES // 8), byte)
        builder.call(library("pthread_attr_init", i32, byte), [attributes])
        stack = ir.Constant(word, STACK)
        builder.call(library("pthread_attr_setstacksize", i32, byte, word), [attributes, stack])
        start = library("pthread_create", i32, word.as_pointer(), byte, body.type, byte)
        handles, begun = cgutils.alloca_once(builder, word, size=MOST), cgutils.alloca_once_value(builder, word(0))
        limit = builder.select(builder.icmp_signed("<", args[1], word(MOST)), args[1], word(MOST))
        others = builder.sub(limit, word(1))
        with cgutils.for_range(builder, others) as loop:
            handle = builder.gep(handles, [builder.load(begun)])
            refused = builder.icmp_unsigned("!=", builder.call(start, [handle, attributes, body, opaque]), i32(0))
            with builder.if_then(refused, likely=False):
                loop.do_break()
            builder.store(builder.add(builder.load(begun), word(1)), begun)
        builder.call(body, [opaque])
        join = library("pthread_join", i32, word, byte.as_pointer())
        with cgutils.for_range(builder, builder.load(begun)) as loop:
            builder.call(join, [builder.load(builder.gep(handles, [loop.index])), ir.Constant(byte.as_pointer(), None)])
        builder.call(library("pthread_attr_destroy", i32, byte), [attributes])
        return builder.load(failures)

    return types.int64(kernel, types.int64, given), codegen


def _thread_body(context: Any, module: Any, compiled: Any, given: Any, pointer: Any) -> Any:
    """Return the function that a thread runs: it calls the kernel, and counts a failure."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(byte, [byte]), name=module.get_unique_name("apsp_thread"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    shared = builder.bitcast(function.args[0], pointer)
    value = builder.load(cgutils.gep_inbounds(builder, shared, 0, 1))
    callee = context.declare_function(module, compiled.fndesc)
    status, _ = context.call_conv.call_function(
        builder, callee, compiled.fndesc.restype, compiled.fndesc.argtypes, [value]
    )
    with builder.if_then(status.is_error, likely=False):
        builder.atomic_rmw("add", cgutils.gep_inbounds(builder, shared, 0, 0), word(1), "seq_cst")
    builder.ret(ir.Constant(byte, None))
    return function
