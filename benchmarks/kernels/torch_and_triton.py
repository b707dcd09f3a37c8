"""Min-plus products in PyTorch and in Triton, for ``benchmarks.kernels.gpu_peers``; both must be installed."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def triton_kernel(c, a, b, n, k, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803, PLR0917
    """Relax a tile of M x N entries."""
    rows = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.program_id(0) * N + tl.arange(0, N)
    at = c + rows[:, None] * n + columns[None, :]
    least = tl.load(at)
    for q in range(k):
        left = tl.load(a + rows * k + q)
        right = tl.load(b + q * n + columns)
        least = tl.minimum(least, left[:, None] + right[None, :])
    tl.store(at, least)


def torch_product(c: Any, a: Any, b: Any) -> None:
    """Relax column by column."""
    for q in range(a.shape[1]):
        torch.minimum(c, a[:, q : q + 1] + b[q : q + 1], out=c)


@torch.compile(dynamic=False)
def compiled_slab(c: Any, a: Any, b: Any) -> Any:
    """Return ``c`` relaxed by a few columns of ``a``."""
    return torch.minimum(c, (a[:, :, None] + b[None]).amin(1))
