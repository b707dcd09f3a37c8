"""Threads of the operating system that run a kernel together, begun and ended by compiled code.

Python takes about 0.1 ms to start a thread, and no other thread runs Python code meanwhile; each kernel that the thread
calls takes Python's lock twice. The threads here never enter Python, so a solve of 1,000 rows takes the lock twice in
all. They sleep on a semaphore until they are needed, and end after ``IDLE`` seconds without work (decision 167).

A pool is one array of int64. It holds the number of threads, whether they are to end, the function that they run and
its argument, two semaphores (work, and work done) and a lock.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature as signature_of
from numba.extending import intrinsic

from engine.devices.cpu.team import fetch_add
from engine.graph.kernels import njit

#: Offsets of the fields of a pool, in bytes, and the size of a pool in words.
ALIVE, ENDING, FUNCTION, GIVEN, WORK, DONE, LOCK = 0, 8, 16, 24, 64, 128, 192
WORDS: Final = 32
#: Seconds without work after which a thread ends.
IDLE: Final = 5
#: Bytes of the stack of each thread; kernels keep their arrays on the heap.
STACK: Final = 2**20
#: Sizes of two structures of the C library, in words: the attributes of a thread, and a set of signals.
_ATTRIBUTES, _SIGNALS = 16, 16
_DETACHED, _SETMASK, _MONOTONIC = 1, 2, 1


def _library(name: str, *inputs: Any) -> Any:
    """Return a function of the C library that takes addresses and numbers, and returns an int."""
    return types.ExternalFunction(name, types.int32(*inputs))


_sem_init = _library("sem_init", types.intp, types.int32, types.int32)
_sem_post = _library("sem_post", types.intp)
_sem_wait = _library("sem_wait", types.intp)
_sem_trywait = _library("sem_trywait", types.intp)
_sem_timedwait = _library("sem_timedwait", types.intp, types.intp)
_lock = _library("pthread_mutex_lock", types.intp)
_unlock = _library("pthread_mutex_unlock", types.intp)
_create = _library("pthread_create", types.intp, types.intp, types.intp, types.intp)
_attr_init = _library("pthread_attr_init", types.intp)
_attr_setstacksize = _library("pthread_attr_setstacksize", types.intp, types.intp)
_attr_setdetachstate = _library("pthread_attr_setdetachstate", types.intp, types.int32)
_attr_destroy = _library("pthread_attr_destroy", types.intp)
_sigfillset = _library("sigfillset", types.intp)
_sigmask = _library("pthread_sigmask", types.int32, types.intp, types.intp)
_clock_gettime = _library("clock_gettime", types.int32, types.intp)


@intrinsic
def function_of(typingctx, kernel, given):  # type: ignore[no-untyped-def]
    """Return the address of a C function that takes an address from :func:`stored`, and calls ``kernel(given)``; if the
    kernel raises, the function counts a failure.
    """
    kernel.get_call_type(typingctx, (given,), {})

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        compiled = signature.args[0].dispatcher.get_compile_result(signature_of(types.none, given))
        context.active_code_library.add_linking_library(compiled.library)
        module, byte, word = builder.module, ir.IntType(8).as_pointer(), ir.IntType(64)
        function = ir.Function(module, ir.FunctionType(byte, [byte]), name=module.get_unique_name("apsp_thread"))
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block())
        shared = inner.bitcast(function.args[0], ir.LiteralStructType([word, args[1].type]).as_pointer())
        value = inner.load(cgutils.gep_inbounds(inner, shared, 0, 1))
        callee = context.declare_function(module, compiled.fndesc)
        status, _ = context.call_conv.call_function(
            inner, callee, compiled.fndesc.restype, compiled.fndesc.argtypes, [value]
        )
        with inner.if_then(status.is_error, likely=False):
            inner.atomic_rmw("add", cgutils.gep_inbounds(inner, shared, 0, 0), word(1), "seq_cst")
        inner.ret(ir.Constant(byte, None))
        return builder.ptrtoint(function, word)

    return types.intp(kernel, given), codegen


@intrinsic
def stored(typingctx, given):  # type: ignore[no-untyped-def]
    """Store a count of failures, which begins at 0, and then ``given`` in the frame of the calling function; return
    their address.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word = ir.IntType(64)
        shared = cgutils.alloca_once(builder, ir.LiteralStructType([word, args[0].type]))
        builder.store(word(0), cgutils.gep_inbounds(builder, shared, 0, 0))
        builder.store(args[0], cgutils.gep_inbounds(builder, shared, 0, 1))
        return builder.ptrtoint(shared, word)

    return types.intp(given), codegen


@intrinsic
def _call(typingctx, function, shared):  # type: ignore[no-untyped-def]
    """Call the C function at address ``function`` with the address ``shared``."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(byte, [byte]).as_pointer()
        builder.call(builder.inttoptr(args[0], kind), [builder.inttoptr(args[1], byte)])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def word_at(typingctx, address):  # type: ignore[no-untyped-def]
    """Return the int64 at an address, which other threads may have written."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(pointer, ordering="seq_cst", align=8)

    return types.int64(types.intp), codegen


@njit(nogil=True, cache=True)
def seconds_now():  # type: ignore[no-untyped-def]
    """Return the seconds of the clock of ``time.perf_counter``."""
    now = np.zeros(2, np.int64)
    _clock_gettime(_MONOTONIC, now.ctypes.data)
    return now[0] + 1e-9 * now[1]


@njit(nogil=True, cache=True)
def _sleep_and_run(pool):  # type: ignore[no-untyped-def]
    """Run each function that the pool at this address is given, until the thread has to end or was not needed for
    ``IDLE`` seconds.
    """
    until = np.zeros(2, np.int64)
    while True:
        _clock_gettime(0, until.ctypes.data)
        until[0] += IDLE
        if _sem_timedwait(pool + WORK, until.ctypes.data) != 0:
            _lock(pool + LOCK)  # under the lock, so that no work is given to a thread that ends
            needed = _sem_trywait(pool + WORK) == 0
            if not needed:
                fetch_add(pool + ALIVE, -1)
            _unlock(pool + LOCK)
            if not needed:
                return
        if word_at(pool + ENDING) != 0:
            fetch_add(pool + ALIVE, -1)
            _sem_post(pool + DONE)
            return
        _call(word_at(pool + FUNCTION), word_at(pool + GIVEN))
        _sem_post(pool + DONE)


@intrinsic
def _sleeper(typingctx):  # type: ignore[no-untyped-def]
    """Return the address of a C function that calls :func:`_sleep_and_run` with its argument."""
    dispatcher = _sleep_and_run
    types.Dispatcher(dispatcher).get_call_type(typingctx, (types.intp,), {})

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        compiled = dispatcher.get_compile_result(signature_of(types.none, types.intp))
        context.active_code_library.add_linking_library(compiled.library)
        module, byte, word = builder.module, ir.IntType(8).as_pointer(), ir.IntType(64)
        function = ir.Function(module, ir.FunctionType(byte, [byte]), name=module.get_unique_name("apsp_sleeper"))
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block())
        callee = context.declare_function(module, compiled.fndesc)
        given = [inner.ptrtoint(function.args[0], word)]
        context.call_conv.call_function(inner, callee, compiled.fndesc.restype, compiled.fndesc.argtypes, given)
        inner.ret(ir.Constant(byte, None))
        return builder.ptrtoint(function, word)

    return types.intp(), codegen


@njit(nogil=True, cache=True)
def prepare_pool(pool):  # type: ignore[no-untyped-def]
    """Make an empty pool in ``pool``, int64, shape (``WORDS``,), all 0."""
    _sem_init(pool.ctypes.data + WORK, 0, 0)
    _sem_init(pool.ctypes.data + DONE, 0, 0)


@njit(nogil=True, cache=True)
def fill_pool(pool, wanted):  # type: ignore[no-untyped-def]
    """Start threads until a pool has ``wanted`` of them; return how many there are, fewer if the system refuses some.

    Only the caller may use the pool meanwhile.  These threads handle no signals.
    """
    here, alive = pool.ctypes.data, pool[0]
    if alive >= wanted:
        return alive
    attributes, signals, before = np.zeros(_ATTRIBUTES, np.int64), np.zeros(_SIGNALS, np.int64), np.zeros(17, np.int64)
    _attr_init(attributes.ctypes.data)
    _attr_setstacksize(attributes.ctypes.data, STACK)
    _attr_setdetachstate(attributes.ctypes.data, _DETACHED)
    _sigfillset(signals.ctypes.data)
    _sigmask(_SETMASK, signals.ctypes.data, before.ctypes.data)
    handle = before.ctypes.data + 8 * _SIGNALS
    _lock(here + LOCK)
    alive = word_at(here + ALIVE)
    while alive < wanted and _create(handle, attributes.ctypes.data, _sleeper(), here) == 0:
        alive = fetch_add(here + ALIVE, 1) + 1
    _unlock(here + LOCK)
    _sigmask(_SETMASK, before.ctypes.data, 0)
    _attr_destroy(attributes.ctypes.data)
    return alive


@njit(nogil=True, cache=True)
def end_pool(pool):  # type: ignore[no-untyped-def]
    """End the threads of a pool that nobody uses, and wait for them; return how many there were."""
    here = pool.ctypes.data
    _lock(here + LOCK)
    pool[1] = 1
    count = word_at(here + ALIVE)
    for _ in range(count):
        _sem_post(here + WORK)
    _unlock(here + LOCK)
    for _ in range(count):
        while _sem_wait(here + DONE) != 0:
            pass
    pool[1] = 0
    return count


@njit(nogil=True, cache=True)
def share_out(pool, wanted, function, shared):  # type: ignore[no-untyped-def]
    """Let up to ``wanted`` threads of a pool, and the calling one, call a C function; return when all have returned.

    A thread that is done early may call the function again, in place of a thread that is late.

    Args:
        pool: as :func:`prepare_pool` makes it; it may have fewer threads.
        wanted: the largest number of calls by the pool's threads.
        function: from :func:`function_of`.
        shared: from :func:`stored`; afterwards :func:`word_at` returns how many calls have failed, for example for lack
            of memory.
    """
    here = pool.ctypes.data
    _lock(here + LOCK)
    pool[2], pool[3] = function, shared
    count = min(wanted, word_at(here + ALIVE))
    for _ in range(count):
        _sem_post(here + WORK)
    _unlock(here + LOCK)
    _call(function, shared)
    for _ in range(count):
        while _sem_wait(here + DONE) != 0:
            pass
