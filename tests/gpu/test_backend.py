"""The CUDA backend, held to the contract of every backend."""

from __future__ import annotations

import pytest

from engine.devices.cuda.backend import CudaBackend
from tests.contracts.backend import BackendContract


@pytest.mark.gpu
@pytest.mark.usefixtures("cupy")
class TestCuda(BackendContract):
    def make(self):
        return CudaBackend()
