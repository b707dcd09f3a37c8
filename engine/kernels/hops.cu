// Breadth-first search from many sources at once, one bit per source.
//
// A vertex holds a row of 4,096 bits; the bits that are new after a step are those that were new in its in-neighbours
// before the step and that the vertex does not have yet (compare Then et al., "The more the merrier: efficient
// multi-source graph traversal", 2014).  Distances are kept bit by bit, too: plane p holds bit p of the distance from
// each source.  All thread blocks share a step, with a barrier after it; at the end planes become rows of the matrix.
// A search of more than ``limit`` steps, or of more steps than the planes can count, is given up.
//
// With LEVELS, no distance is kept: after each step the new bits of each source are counted, and only these counts leave
// the kernel, out[level][source].

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, ROW = 128, SOURCES = 32 * ROW;  // words in a row, sources in a block
constexpr int PLANES = 8;
constexpr int MOST_LEVELS = 1 << PLANES;
#ifndef ARCS
#define ARCS 4
#endif

template <class A> struct Hops {
  static INLINE Element of(u32 level) { return (Element)level; }
};
template <> struct Hops<Float32Nonnegative> {
  static INLINE u32 of(u32 level) { return __float_as_uint((float)level); }
};

INLINE uint4 operator|(uint4 a, uint4 b) { return make_uint4(a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w); }
INLINE uint4 without(uint4 a, uint4 b) { return make_uint4(a.x & ~b.x, a.y & ~b.y, a.z & ~b.z, a.w & ~b.w); }
INLINE bool any(uint4 a) { return (a.x | a.y | a.z | a.w) != 0; }

}  // namespace

struct Walk {
  const int *chunks, *tails, *heads;  // as in search.cu
  const int* sources;                 // the vertices of the sources
#ifdef LEVELS
  u32* out;  // MOST_LEVELS x ld
#else
  Element* out;
#endif
  uint4* rows;   // (3 + PLANES) x n rows: seen, new (twice), planes; with LEVELS there are no planes
  int* stamps;   // 2 x n, as in search.cu
  u32* state;    // [0] given up, [1] arrivals, [2] stamp, [3 ... 5] whether a step reached a vertex, [6] last level
  long long ld, limit;
  int n, chunk_count, source_count;
};

namespace {

INLINE void barrier(volatile u32* arrivals, u32& waited) {
  __syncthreads();
  waited++;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd((u32*)arrivals, 1u);
    while (*arrivals < waited * gridDim.x);
    __threadfence();
  }
  __syncthreads();
}

INLINE uint4* row(const Walk& s, int array, int v) { return s.rows + ((size_t)array * s.n + v) * (ROW / 4); }

// Finds the sources that reach ``head`` for the first time, at distance ``level``, through the arcs of the lanes in
// ``arcs``, and adds them to the rows of ``head``; returns whether there are any.
INLINE bool reach(const Walk& s, int head, u32 arcs, int u, int fresh, u32 level, bool first_part, int lane) {
  uint4* const own = row(s, 0, head) + lane;
  uint4 seen = __ldcg(own), found = make_uint4(0, 0, 0, 0);
  while (arcs) {
    uint4 y[ARCS];
    UNROLL for (int k = 0; k < ARCS; k++) {
      const bool some = arcs != 0;
      const int tail = __shfl_sync(~0u, u, some ? __ffs(arcs) - 1 : 0);
      arcs &= arcs - 1;
      y[k] = some ? __ldcg(row(s, fresh, tail) + lane) : make_uint4(0, 0, 0, 0);
    }
    UNROLL for (int k = 0; k < ARCS; k++) found = found | y[k];
  }
  found = without(found, seen);
  const bool some = any(found);
  if (!__any_sync(~0u, some)) return false;
  uint4* const next = row(s, 3 - fresh, head) + lane;
  if (some) {
    __stcg(own, seen | found);
#ifndef LEVELS
    for (int p = 0; p < PLANES; p++)
      if (level >> p & 1) {
        uint4* const plane = row(s, 3 + p, head) + lane;
        __stcg(plane, __ldcg(plane) | found);
      }
#endif
  }
  __stcg(next, first_part ? found : __ldcg(next) | found);
  return true;
}

INLINE bool step(const Walk& s, int stamp, u32 level) {
  const int lane = threadIdx.x % 32;
  const int* const now = s.stamps + (size_t)(stamp & 1) * s.n;
  int* const then = s.stamps + (size_t)((stamp + 1) & 1) * s.n;
  bool changed = false;
  for (int c = blockIdx.x * WARPS + threadIdx.x / 32; c < s.chunk_count; c += gridDim.x * WARPS) {
    const int begin = __ldg(s.chunks + c), end = __ldg(s.chunks + c + 1);
    int written = -1;  // a vertex of many arcs is done in parts; the first part overwrites its row of new bits
    for (int e0 = begin; e0 < end; e0 += 32) {
      const int e = e0 + lane;
      int u = 0, v = -1;
      bool active = false;
      if (e < end) {
        u = __ldg(s.tails + e), v = __ldg(s.heads + e);
        active = __ldcg(now + u) == stamp;
      }
      u32 left = __ballot_sync(~0u, active);
      while (left) {
        const int head = __shfl_sync(~0u, v, __ffs(left) - 1);
        const u32 own = left & __ballot_sync(~0u, v == head);
        left ^= own;
        if (reach(s, head, own, u, 1 + (stamp & 1), level, head != written, lane)) {
          changed = true, written = head;
          if (lane == 0) __stcg(then + head, stamp + 1);
        }
      }
    }
  }
  return changed;
}

#ifdef LEVELS
// Adds to ``own_counts`` the numbers that ``planes`` hold bit by bit for the 128 sources of this lane, and clears them.
INLINE void flush(uint4 (&planes)[PLANES], u32* own_counts, int lane) {
  UNROLL for (int q = 0; q < 4; q++) {
    auto word = [&](int p) { return q == 0 ? planes[p].x : q == 1 ? planes[p].y : q == 2 ? planes[p].z : planes[p].w; };
    u32 some = 0;
    UNROLL for (int p = 0; p < PLANES; p++) some |= word(p);
    while (some) {
      const int i = __ffs(some) - 1;
      some &= some - 1;
      u32 sum = 0;
      UNROLL for (int p = 0; p < PLANES; p++) sum |= (word(p) >> i & 1) << p;
      atomicAdd(own_counts + lane * 128 + q * 32 + i, sum);
    }
  }
  UNROLL for (int p = 0; p < PLANES; p++) planes[p] = make_uint4(0, 0, 0, 0);
}

// Counts the new bits of each source after step ``stamp``, and adds them to out[level][first ...].  A warp counts up to
// 255 vertices in binary numbers that lie bit by bit in PLANES words.
INLINE void tally(const Walk& s, int stamp, u32 level, int first, int count) {
  __shared__ u32 own_counts[SOURCES];
  for (int i = threadIdx.x; i < SOURCES; i += THREADS) own_counts[i] = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32, warps = gridDim.x * WARPS;
  const int* const then = s.stamps + (size_t)((stamp + 1) & 1) * s.n;
  uint4 planes[PLANES];
  UNROLL for (int p = 0; p < PLANES; p++) planes[p] = make_uint4(0, 0, 0, 0);
  int held = 0;
  for (int base = (blockIdx.x * WARPS + threadIdx.x / 32) * 32; base < s.n; base += warps * 32) {
    u32 left = __ballot_sync(~0u, base + lane < s.n && __ldcg(then + min(base + lane, s.n - 1)) == stamp + 1);
    while (left) {
      const int v = base + __ffs(left) - 1;
      left &= left - 1;
      uint4 carry = __ldcg(row(s, 2 - (stamp & 1), v) + lane);
      UNROLL for (int p = 0; p < PLANES; p++) {
        const uint4 sum = planes[p];
        planes[p] = make_uint4(sum.x ^ carry.x, sum.y ^ carry.y, sum.z ^ carry.z, sum.w ^ carry.w);
        carry = make_uint4(sum.x & carry.x, sum.y & carry.y, sum.z & carry.z, sum.w & carry.w);
      }
      if (++held == (1 << PLANES) - 1) flush(planes, own_counts, lane), held = 0;
    }
  }
  flush(planes, own_counts, lane);
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += THREADS)
    if (own_counts[i]) atomicAdd(s.out + (size_t)level * s.ld + first + i, own_counts[i]);
  __syncthreads();
}
#else
// Writes the rows of ``out`` of ``count`` sources.  A warp converts the bits of 32 vertices and 128 sources at a time.
INLINE void emit(const Walk& s, int first, int count, u32 levels) {
  const int lane = threadIdx.x % 32, across = (s.n + 31) / 32, parts = (count + 127) / 128;
  const Element nothing = (Element)Arithmetic::unreachable();
  int planes = 0;
  while (levels >> planes) planes++;
  for (int t = blockIdx.x * WARPS + threadIdx.x / 32; t < across * parts; t += gridDim.x * WARPS) {
    const int v = t / parts * 32 + lane, part = t % parts;
    if (v >= s.n) continue;
    uint4 bits[PLANES + 1];
    bits[PLANES] = __ldcg(row(s, 0, v) + part);
    UNROLL for (int p = 0; p < PLANES; p++) bits[p] = p < planes ? __ldcg(row(s, 3 + p, v) + part) : make_uint4(0, 0, 0, 0);
    UNROLL for (int q = 0; q < 4; q++) {
      auto word = [&](int p) { return q == 0 ? bits[p].x : q == 1 ? bits[p].y : q == 2 ? bits[p].z : bits[p].w; };
      const int begin = part * 128 + q * 32;
      for (int i = 0; i < 32 && begin + i < count; i++) {
        u32 level = 0;
        UNROLL for (int p = 0; p < PLANES; p++) level |= (word(p) >> i & 1) << p;
        const bool reached = word(PLANES) >> i & 1;
        __stcs(s.out + (size_t)(first + begin + i) * s.ld + v, reached ? Hops<Arithmetic>::of(level) : nothing);
      }
    }
  }
}
#endif

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS) hops(const __grid_constant__ Walk s) {
  volatile u32* const changed = s.state + 3;
  u32 waited = 0;
  int stamp = (int)((volatile u32*)s.state)[2];
#ifdef LEVELS
  constexpr int ARRAYS = 3;
#else
  constexpr int ARRAYS = 3 + PLANES;
#endif
  const size_t vectors = (size_t)ARRAYS * s.n * (ROW / 4), kept = (size_t)3 * s.n * (ROW / 4);
  const size_t own = (size_t)blockIdx.x * THREADS + threadIdx.x, all = (size_t)gridDim.x * THREADS;
  bool given_up = false;
  for (int first = 0; first < s.source_count && !given_up; first += SOURCES) {
    const int count = min(SOURCES, s.source_count - first);
    for (size_t i = own; i < vectors; i += all)  // rows of new bits need no clearing
      if (i < kept / 3 || i >= kept) __stcg(s.rows + i, make_uint4(0, 0, 0, 0));
    if (own < 3) changed[own] = 0;
#ifdef LEVELS
    for (size_t i = own; i < (size_t)MOST_LEVELS * count; i += all) s.out[i / count * s.ld + first + i % count] = 0;
#endif
    barrier(s.state + 1, waited);
    const int fresh = 1 + (stamp & 1);
    for (size_t i = own / 32; i < (size_t)count; i += all / 32) {  // one warp per source; rows of new bits are empty
      const int v = __ldg(s.sources + first + i), lane = threadIdx.x % 32;
      const int word = (int)i / 32 - 4 * lane;  // index among the four words of this lane
      const u32 bit = 1u << i % 32;
      const uint4 x = make_uint4(word == 0 ? bit : 0, word == 1 ? bit : 0, word == 2 ? bit : 0, word == 3 ? bit : 0);
      __stcg(row(s, 0, v) + lane, x);
      __stcg(row(s, fresh, v) + lane, x);
      if (lane == 0) __stcg(s.stamps + (size_t)(stamp & 1) * s.n + v, stamp);
    }
    barrier(s.state + 1, waited);
    u32 level = 1;
    for (int i = 0;; i++, stamp++, level++) {
      const bool found = step(s, stamp, level);
      if (found && threadIdx.x % 32 == 0) changed[i % 3] = 1;
      if (own == 0) changed[(i + 1) % 3] = 0;
      barrier(s.state + 1, waited);
      if (!changed[i % 3]) break;
#ifdef LEVELS
      tally(s, stamp, level, first, count);
      if (own == 0 && ((volatile u32*)s.state)[6] < level) ((volatile u32*)s.state)[6] = level;
#endif
      if (level >= (1u << PLANES) - 1 || level >= s.limit) {
        given_up = true;
        break;
      }
    }
    stamp += 2;
#ifndef LEVELS
    emit(s, first, count, level);
#endif
    barrier(s.state + 1, waited);
  }
  if (own == 0) {
    ((volatile u32*)s.state)[2] = stamp;
    if (given_up) s.state[0] = 1;
  }
}
