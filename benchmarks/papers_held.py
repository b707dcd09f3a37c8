"""Figures from published papers, for the tables of ``benchmarks.papers``."""

from __future__ import annotations

from typing import Final

PAPER: Final = "Takafuji, Nakano, Ito: single-kernel blocked Floyd-Warshall, NVIDIA V100"

#: Takafuji et al., Table I: n -> milliseconds of the single kernel, one graph.  The paper has no n = 65,536.
TABLE_1: Final[dict[int, float | None]] = {
    64: 0.0388,
    128: 0.0737,
    256: 0.146,
    512: 0.388,
    1024: 1.36,
    2048: 7.04,
    4096: 48.3,
    8192: 378.0,
    16384: 3020.0,
    32768: 24897.0,
    65536: None,
}
#: Takafuji et al., Table II: (graphs, n) -> milliseconds of one launch; None where we do not have the paper's figure.
TABLE_2: Final[dict[tuple[int, int], float | None]] = {
    (4, 64): None,
    (64, 64): None,
    (2048, 64): 0.644,
    (4, 256): None,
    (64, 256): None,
    (256, 256): 3.74,
    (4, 1024): None,
    (64, 1024): 50.2,
}
#: Okuyama, Ino, Hagihara: Fast blocked Floyd-Warshall algorithm on the GPU (in Japanese), 2010, Table 1: n ->
#: milliseconds of the iterative methods A and B, and of the recursive method, with tiles of 32 x 32.
OKUYAMA: Final = "Okuyama, Ino, Hagihara 2010, Table 1: GeForce GTX 280, random graphs, m = 4n"
SHARES: Final[dict[int, tuple[float, float, float] | None]] = {
    128: (0.404, 0.567, 0.561),
    256: (0.819, 1.196, 1.585),
    512: (2.558, 3.394, 4.738),
    1024: (13.82, 15.88, 17.21),
    2048: (87.42, 96.32, 91.97),
    4096: (630.3, 699.9, 631.5),
    8192: (4869.0, 5353.0, 4866.0),
    16384: None,
}
#: Okuyama, Ino, Hagihara: A task parallel algorithm for computing the costs of all-pairs shortest paths on the
#: CUDA-compatible GPU (ISPA 2008), Table 1: n -> seconds of Harish and Narayanan's search from one source at a time, of
#: the authors' search, and of Floyd-Warshall on the GPU.
TASK_PARALLEL: Final = "Okuyama, Ino, Hagihara 2008, Table 1: GeForce 8800 GTX, batched searches, m = 4n"
TABLES_2008: Final[dict[int, tuple[float, float, float | None]]] = {
    1024: (0.827, 0.044, 0.131),
    2048: (1.813, 0.125, 0.629),
    4096: (4.316, 0.407, 3.863),
    8192: (10.117, 1.4, 27.804),
    16384: (27.506, 5.478, None),
    32768: (75.3, 21.437, None),
}
#: Xing et al. (GeForce GTX 560 Ti), Table 1: n -> seconds of the product and of Floyd-Warshall on the GPU.
XING_1: Final = {
    256: (0.109, 0.124),
    512: (0.156, 0.14),
    1024: (0.359, 0.14),
    2048: (1.747, 0.375),
    3072: (5.709, 0.982),
    4096: (12.745, 2.106),
    5120: (25.865, 3.962),
}
#: Xing et al., Table 2, matrices larger than the GPU's memory: n -> seconds in synchronous batches, and in streams.
XING_2: Final = {
    11264: (405.054, 244.7),
    12288: (515.83, 291.83),
    13312: (631.91, 367.1),
    14336: (774.71, 448.88),
    15360: (919.038, 533.92),
}
#: Fixstars' table (GeForce GTX 980): n -> milliseconds of the naive order, and of the recursive order with products.
LARGE: Final[dict[int, tuple[float | None, float]]] = {8192: (25460.0, 604.0), 16384: (None, 4685.0)}
