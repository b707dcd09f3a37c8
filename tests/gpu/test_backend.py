"""The CUDA backend, held to the contract of every backend."""

from __future__ import annotations

import pytest

from tests.contracts.backend import BackendContract
from tests.gpu.cuda_backend import CudaBackend


@pytest.mark.gpu
@pytest.mark.usefixtures("cupy")
class TestCuda(BackendContract):
    def make(self):
        return CudaBackend()
