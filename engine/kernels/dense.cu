// dense: steps before and after a matrix is solved on the device.
//
// blank: makes rows unreachable.  scatter: writes arcs into rows.  settle: makes entries above every distance
// unreachable.  restore: turns reduced lengths into lengths.  facts, histogram: summarise rows.  There is one block per
// row everywhere.

namespace {

constexpr int THREADS = 256, BINS = 128;

INLINE Element nothing() { return (Element)Arithmetic::unreachable(); }  // for uint16, the low half of the word

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS) blank(Element* d, long long ld, int columns) {
  Element* const row = d + blockIdx.x * ld;
  for (int j = threadIdx.x; j < columns; j += THREADS) row[j] = nothing();
}

// Writes the arcs of rows first, first + 1, ... and zeros on the diagonal; ``heads`` and ``weights`` begin with arc
// ``begin``.
extern "C" __global__ void __launch_bounds__(THREADS) scatter(
    Element* d, long long ld, int first, const long long* indptr, long long begin, const int* heads,
    const Element* weights) {
  const int row = first + blockIdx.x;
  for (long long i = indptr[row] - begin + threadIdx.x; i < indptr[row + 1] - begin; i += THREADS)
    if (heads[i] != row) d[row * ld + heads[i]] = weights[i];
  if (threadIdx.x == 0) d[row * ld + row] = 0;
}

// For integers with negative arcs: makes entries above ``largest`` unreachable, because each is a sum with
// *unreachable* in it.
extern "C" __global__ void __launch_bounds__(THREADS) settle(Element* d, long long ld, int n, int largest) {
  Element* const row = d + blockIdx.x * ld;
  for (int j = threadIdx.x; j < n; j += THREADS)
    if (Meaning<Arithmetic>::of(row[j]) > (Value)largest) row[j] = nothing();
}

// Turns lengths over weights w + h[u] - h[v] into lengths over w, in double, rounded once.  The potentials are
// subtracted from each other first, because otherwise a large potential would absorb a small distance.
extern "C" __global__ void __launch_bounds__(THREADS) restore(
    Element* d, long long ld, int n, const long long* sources, const double* h) {
  Element* const row = d + blockIdx.x * ld;
  const double own = h[sources[blockIdx.x]];
  for (int j = threadIdx.x; j < n; j += THREADS)
    if (row[j] != nothing()) row[j] = Meaning<Arithmetic>::from((double)Meaning<Arithmetic>::of(row[j]) + (h[j] - own));
}

// For each row, without its source: vertices reached, sum of distances, largest distance, and the first vertex at that
// distance.
extern "C" __global__ void __launch_bounds__(THREADS) facts(
    const __grid_constant__ Rows all, long long* reached, Sum* sums, Value* largest, long long* farthest) {
  __shared__ int some_counts[THREADS / 32], some_at[THREADS / 32];
  __shared__ Sum some_sums[THREADS / 32];
  __shared__ Value some_tops[THREADS / 32];
  const Element* const row = row_of(all);
  const int own = (int)all.sources[blockIdx.x], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int count = 0, at = -1;
  Sum sum = 0;
  Value top = 0;
  auto take = [&](Value x, int j) {
    if (j >= 0 && (at < 0 || x > top || (x == top && j < at))) top = x, at = j;
  };
  for (int j = threadIdx.x; j < all.n; j += THREADS) {
    const Element e = row[j];
    if (e == nothing() || j == own) continue;
    const Value x = Meaning<Arithmetic>::of(e);
    count++, sum += x;
    take(x, j);
  }
  for (int step = 16; step; step /= 2) {
    count += __shfl_down_sync(~0u, count, step);
    sum += __shfl_down_sync(~0u, sum, step);
    const Value x = __shfl_down_sync(~0u, top, step);
    take(x, __shfl_down_sync(~0u, at, step));
  }
  if (lane == 0) some_counts[warp] = count, some_sums[warp] = sum, some_tops[warp] = top, some_at[warp] = at;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < THREADS / 32; w++) {
    count += some_counts[w], sum += some_sums[w];
    take(some_tops[w], some_at[w]);
  }
  reached[blockIdx.x] = count, sums[blockIdx.x] = sum;
  largest[blockIdx.x] = top, farthest[blockIdx.x] = at;
}

// Counts finite distances in bins of width 1 / ``inverse`` from 0 on; counts[BINS] takes those below 0.
extern "C" __global__ void __launch_bounds__(THREADS) histogram(
    const __grid_constant__ Rows all, double inverse, u64* counts) {
  __shared__ u32 own_counts[BINS + 1];
  for (int i = threadIdx.x; i <= BINS; i += THREADS) own_counts[i] = 0;
  __syncthreads();
  const Element* const row = row_of(all);
  const int own = (int)all.sources[blockIdx.x];
  for (int j = threadIdx.x; j < all.n; j += THREADS) {
    const Element e = row[j];
    if (e == nothing() || j == own) continue;
    const Value x = Meaning<Arithmetic>::of(e);
    atomicAdd(own_counts + (x < 0 ? BINS : min(BINS - 1, (int)(x * inverse))), 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i <= BINS; i += THREADS)
    if (own_counts[i]) atomicAdd(counts + i, (u64)own_counts[i]);
}
