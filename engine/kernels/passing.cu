// passing: counts shortest paths in finished rows of distances, and adds up what passes through vertices and over arcs
// (Brandes 2001).  Entries are whole numbers.
//
// A block takes one row after the other.  An arc is *tight* if it lies on a shortest path from the row's source.  Tight
// arcs have no cycle, so vertices are taken in levels: a vertex joins the next level when the last tight arc into it
// has been passed.  Levels are stored, and taken backwards to sum what passes on.  Every block has sums of its own, and
// adds up the arcs of each vertex always in the same order, so results do not depend on timing.

namespace {

constexpr int THREADS = 128;
constexpr int HEAVY = 64;  // a vertex with more arcs is shared by the threads of a warp

// The arcs of the graph in both directions (CSR); without weights each counts 1.
struct Network {
  const long long *into, *out;
  const int *tails, *weights_into, *heads, *weights;
  int n;
};

// The work space of all blocks; each array has the entries of block 0 first.
struct Space {
  double *sigma, *coeff, *vertices, *ends, *over;  // ``ends`` and ``over`` are null where they are not wanted
  int *order, *starts;
  long long arcs;
};

// Takes the vertices at places ``first`` to ``last`` - 1 of ``list`` (these numbers themselves if there is no list):
// adds up what ``part`` returns for the arcs of each vertex, and calls ``finish`` with the sum.
template <class Part, class Finish>
INLINE void each(int first, int last, const int* list, const long long* ends, Part part, Finish finish) {
  const int lane = threadIdx.x % 32;
  for (int base = first; base < last; base += THREADS) {
    const int i = base + threadIdx.x;
    int v = -1;
    long long low = 0, high = 0;
    if (i < last) v = list ? list[i] : i, low = ends[v], high = ends[v + 1];
    const bool heavy = high - low > HEAVY;
    if (v >= 0 && !heavy) {
      double sum = 0;
      for (long long e = low; e < high; e++) sum += part(v, e);
      finish(v, sum);
    }
    for (u32 waiting = __ballot_sync(~0u, heavy); waiting; waiting &= waiting - 1) {
      const int from = __ffs(waiting) - 1;
      const int shared = __shfl_sync(~0u, v, from);
      const long long begin = __shfl_sync(~0u, low, from), end = __shfl_sync(~0u, high, from);
      double sum = 0;
      for (long long e = begin + lane; e < end; e += 32) sum += part(shared, e);
      for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
      if (lane == 0) finish(shared, sum);
    }
  }
}

// Returns the sum or the maximum of ``x`` over all threads, to the first thread only.
INLINE double gathered(double x, bool largest) {
  __shared__ double warps[THREADS / 32];
  for (int step = 16; step; step /= 2) {
    const double other = __shfl_down_sync(~0u, x, step);
    x = largest ? fmax(x, other) : x + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < THREADS / 32; w++) x = largest ? fmax(x, warps[w]) : x + warps[w];
  return x;
}

}  // namespace

// Counts the paths in ``count`` rows.
//
// sources, own: of each row, the vertex where its paths begin, and the vertex that keeps nothing of them (-1: none).
// kept: what each vertex keeps of all other rows.
// told: of each row, what left the source, what arrived, and the largest number of paths to a vertex, or -1 in its
// place if the levels have not reached every vertex that the row reaches.
extern "C" __global__ void __launch_bounds__(THREADS, 8) passing(
    const __grid_constant__ Network net, const __grid_constant__ Space space, const Element* rows, long long ld,
    int count, const long long* sources, const long long* own, const double* kept, double* told) {
  __shared__ int tail;
  const int n = net.n;
  const long long mine = (long long)blockIdx.x * n;
  double* const sigma = space.sigma + mine;
  double* const coeff = space.coeff + mine;
  double* const vertices = space.vertices + mine;
  double* const ends = space.ends ? space.ends + mine : nullptr;
  double* const over = space.over ? space.over + blockIdx.x * space.arcs : nullptr;
  int* const order = space.order + mine;
  int* const starts = space.starts + mine;
  int* const pending = (int*)coeff;  // tight arcs into each vertex not passed yet; ``coeff`` is used later

  for (int r = blockIdx.x; r < count; r += gridDim.x) {
    const Element* const d = rows + r * ld;
    const int source = (int)sources[r], alone = (int)own[r];
    const u32 unreachable = (Element)Arithmetic::unreachable();
    const auto tight = [&](int u, int v, const int* weights, long long e) {
      return (u32)d[u] + (weights ? (u32)weights[e] : 1u) == (u32)d[v];
    };

    double reached = 0;
    each(0, n, nullptr, net.into,
         [&](int v, long long e) { return tight(net.tails[e], v, net.weights_into, e) ? 1.0 : 0.0; },
         [&](int v, double sum) {
           const bool there = d[v] != unreachable;
           pending[v] = there ? (int)sum : -1;
           reached += there;
         });
    reached = gathered(reached, false);
    __syncthreads();
    if (threadIdx.x == 0) order[0] = source, sigma[source] = 1, tail = 1;
    __syncthreads();

    int levels = 0, first = 0, last = 1;
    double most = 1;
    while (first < last) {
      if (threadIdx.x == 0) starts[levels] = first;
      if (levels > 0)
        each(first, last, order, net.into,
             [&](int v, long long e) {
               const int u = net.tails[e];
               return tight(u, v, net.weights_into, e) ? sigma[u] : 0.0;
             },
             [&](int v, double sum) { sigma[v] = sum, most = fmax(most, sum); });
      each(first, last, order, net.out,
           [&](int u, long long e) {
             const int v = net.heads[e];
             if (tight(u, v, net.weights, e) && atomicSub(pending + v, 1) == 1) order[atomicAdd(&tail, 1)] = v;
             return 0.0;
           },
           [](int, double) {});
      __syncthreads();
      first = last, last = tail, levels++;
      __syncthreads();
    }
    most = gathered(most, true);

    double arrived = 0;
    for (int level = levels - 1, stop = last; level >= 0; level--) {
      const int start = starts[level];
      each(start, stop, order, net.out,
           [&](int u, long long e) {
             const int v = net.heads[e];
             const double share = tight(u, v, net.weights, e) ? coeff[v] : 0.0;
             if (over && share != 0) over[e] += sigma[u] * share;
             return share;
           },
           [&](int u, double sum) {
             const double keeps = u == alone ? 0.0 : kept[u], passed = sigma[u] * sum;
             coeff[u] = (keeps + passed) / sigma[u];
             if (ends) ends[u] += keeps;
             if (u != source) vertices[u] += passed, arrived += keeps;
             else told[3 * r] = passed;
           });
      stop = start;
      __syncthreads();
    }
    arrived = gathered(arrived, false);
    if (threadIdx.x == 0) told[3 * r + 1] = arrived, told[3 * r + 2] = last == (int)reached ? most : -1;
    __syncthreads();
  }
}

// Adds up the ``width`` sums of all blocks: out[i] is the sum of sums[block][i].
extern "C" __global__ void __launch_bounds__(256) joined(const double* sums, long long width, int blocks, double* out) {
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < width; i += 256ll * gridDim.x) {
    double sum = 0;
    for (int b = 0; b < blocks; b++) sum += sums[b * width + i];
    out[i] = sum;
  }
}
