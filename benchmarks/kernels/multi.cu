// The baselines: one launch a pivot, and three launches a round (Lund and Smith) over the single kernel's own arithmetic.
// Appended to common.cuh and single.cu.

extern "C" __global__ void naive(Element* d, int n, int k) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j < n) d[(size_t)i * n + j] = Arithmetic::one(d[(size_t)i * n + j], d[(size_t)i * n + k], d[(size_t)k * n + j]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pivot(const __grid_constant__ Block g, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  Single* const a_tile = (Single*)memory;
  Single* const b_tile = a_tile + SIDE * LD_A;
  Single c[ROWS][COLUMNS];
  const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
  UNROLL for (int i = 0; i < ROWS; i++) read4(g, true, g.d, k * SIDE + row_of(i), k * SIDE + x * 4, c[i]);
  if (INTERLEAVED) regroup(c, b_tile, x, y, false);
  close_tile(c, a_tile);
  if (INTERLEAVED) regroup(c, b_tile, x, y, true);
  UNROLL for (int i = 0; i < ROWS; i++) write4(g, true, g.d, k * SIDE + row_of(i), k * SIDE + x * 4, c[i]);
}

INLINE void update_tile(const Block& g, int i, int j, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  Single* const a_tile = (Single*)memory;
  Single* const b_tile = a_tile + SIDE * LD_A;
  const int x = threadIdx.x % ACROSS;
  Single c[ROWS][COLUMNS];
  UNROLL for (int part = 0; part < PARTS; part++) {
    fetch_a(g, g.d, i, k, part, a_tile);
    fetch_b(g, g.d, k, j, part, b_tile);
    copy_commit();
  }
  UNROLL for (int r = 0; r < ROWS; r++) read4(g, true, g.d, i * SIDE + row_of(r), j * SIDE + x * 4, c[r]);
  multiply(c, a_tile, b_tile);
  UNROLL for (int r = 0; r < ROWS; r++) write4(g, true, g.d, i * SIDE + row_of(r), j * SIDE + x * 4, c[r]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) panels(const __grid_constant__ Block g, int k) {
  const int others = g.tiles - 1, t = blockIdx.x % others, x = t + (t >= k);
  if ((int)blockIdx.x < others) update_tile(g, k, x, k);
  else update_tile(g, x, k, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rest(const __grid_constant__ Block g, int k) {
  const int i = blockIdx.y, j = blockIdx.x;
  update_tile(g, i + (i >= k), j + (j >= k), k);
}
