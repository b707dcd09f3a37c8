"""The checksum of files: that of google-crc32c, and without Python's lock."""

from __future__ import annotations

import ctypes
import sys
import threading

import google_crc32c
import numpy as np
import pytest

from storage.files import checksum
from storage.files.checksum import crc32c


@pytest.mark.parametrize("count", [0, 1, 2**15 - 1, 2**15, 2**15 + 13, 2**21])
@pytest.mark.parametrize("before", [0, 77])
@pytest.mark.parametrize("with_lock", [False, True])
def test_checksums_are_those_of_the_package(monkeypatch, count, before, with_lock):
    """Through the C function without Python's lock, and where that is not there; bytes, and arrays of several types."""
    if with_lock:
        monkeypatch.setattr(checksum, "_EXTEND", None)
    data = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    wanted = google_crc32c.extend(before, data.tobytes())
    assert crc32c(data.tobytes(), before) == crc32c(data, before) == wanted
    if count % 8 == 0:
        assert crc32c(data.view(np.float64).reshape(-1, 1), before) == wanted
    if count > 2**16:
        with pytest.raises((ValueError, BufferError)):
            crc32c(data[::2], before)


@pytest.mark.parametrize("lock_kept", [False, True])
def test_other_threads_run_while_a_long_checksum_is_computed(monkeypatch, lock_kept):
    """And that they would not if Python's lock was kept, so that this test can fail."""
    assert checksum._EXTEND is not None, "the package has no C function here"
    if lock_kept:
        extend = ctypes.PyDLL(google_crc32c._crc32c.__file__).crc32c_extend
        extend.restype, extend.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
        monkeypatch.setattr(checksum, "_EXTEND", extend)
    data, go, turns, before = np.zeros(2**28, np.uint8), threading.Event(), 0, sys.getswitchinterval()

    def count():
        nonlocal turns
        go.wait()
        for turns in range(10_000):  # noqa: B007
            pass

    thread = threading.Thread(target=count)
    sys.setswitchinterval(60)  # whoever has the lock gives it away only to wait
    try:
        thread.start()
        go.set()
        for _ in range(1 if lock_kept else 100):  # the other thread may wait for a processor, too
            crc32c(data)
            if counted := turns:
                break
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert (counted == 0) == lock_kept


def test_the_address_is_that_of_the_function(monkeypatch):
    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    assert kind(checksum.checksum_address())(77, b"123456789", 9) == google_crc32c.extend(77, b"123456789")
    monkeypatch.setattr(checksum, "_EXTEND", None)
    assert checksum.checksum_address() is None
