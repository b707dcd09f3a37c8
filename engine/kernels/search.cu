// Shortest paths from many sources at once, by correcting labels.
//
// Sources are searched in blocks: a vertex holds one row of labels, one label per source, so that the lanes of a warp
// share arcs and every access is coalesced (Okuyama, Ino, Hagihara, "A task parallel algorithm for finding all-pairs
// shortest paths using the GPU", 2008).  A vertex *pulls*: it takes the minimum over its in-arcs whose tails changed in
// the sweep before; its row has one writer, so nothing is atomic.  Labels may be read while they fall: each is the
// length of some walk, and if the label of a vertex changed, the arcs out of it are relaxed again.
//
// There are two forms.  FORM_SWEEP: all thread blocks of a group sweep over all vertices for one block of sources, with
// a barrier of the group after each sweep; rows have 512 bytes.  FORM_LISTS: each thread block has its own sources and
// lists of the vertices to visit; rows have 128 bytes.  FORM_SWEEP suits graphs with few hops across, FORM_LISTS those
// with many.
//
// Labels may be narrower than the matrix (WIDEN: uint16 into int32); the host then proves that no label was capped.
// A search that takes more than ``limit`` sweeps, or visits to vertices, is given up.

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int PER16 = 16 / sizeof(Element), WORDS16 = Arithmetic::WIDTH;
#ifdef FORM_SWEEP
#ifndef VECTORS
#define VECTORS 1  // vectors of 16 bytes of a row that each thread has
#endif
constexpr int LANES = 32;
#else
#define VECTORS 1
constexpr int LANES = 8;
#endif
#ifndef ARCS
#define ARCS 4  // in-arcs whose rows are fetched together
#endif
constexpr int SOURCES = LANES * VECTORS * PER16;  // sources of a block, labels of a row
constexpr int TILE = 64;                          // vertices transposed at a time
constexpr int STATE = 32;                         // words of state of a group
#ifndef RESIDENT
#define RESIDENT (sizeof(Element) == 8 ? 3 : 4)  // resident thread blocks without spilled registers
#endif

#ifdef WIDEN
typedef u32 Out;
INLINE Out widened(Element e) { return e == (Element)0x7fff ? (1u << 30) - 1 : (u32)e; }
#else
typedef Element Out;
INLINE Out widened(Element e) { return e; }
#endif

template <class A> struct Relaxed;
template <> struct Relaxed<Int32> {
  static INLINE u32 of(u32 c, u32 y, u32 w) { return (u32)min((int)c, (int)(y + w)); }
};
template <> struct Relaxed<Uint16> {
  static INLINE u32 of(u32 c, u32 y, u32 w) { return add_minimum_pair(y, w, c); }
};
template <> struct Relaxed<Float32Nonnegative> {
  static INLINE u32 of(u32 c, u32 y, u32 w) { return Float32Nonnegative::one(c, y, w); }
};
template <> struct Relaxed<Float64> {
  static INLINE double of(double c, double y, double w) { return Float64::one(c, y, w); }
};

INLINE Element zero() { return (Element)0; }

INLINE void load_row(const Element* p, Word* r) { load16((const Word*)p, r); }
INLINE void load_far(const u32* p, u32* r) {  // bypasses the first-level cache, which is not coherent
  const uint4 v = __ldcg((const uint4*)p);
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
INLINE void load_far(const double* p, double* r) {
  const double2 v = __ldcg((const double2*)p);
  r[0] = v.x, r[1] = v.y;
}
INLINE void store_far(u32* p, const u32* r) { __stcg((uint4*)p, make_uint4(r[0], r[1], r[2], r[3])); }
INLINE void store_far(double* p, const double* r) { __stcg((double2*)p, make_double2(r[0], r[1])); }

}  // namespace

// Arcs are sorted by head.  ``vertices`` may exceed ``n``: additional vertices gather some of the arcs into a vertex.
struct Search {
  const int* chunks;       // sweep: first arc of each chunk of whole vertices, and the end
  const int* into;         // lists: first arc into each vertex, and the end
  const int* tails;
  const int* heads;        // sweep: of each arc
  const Element* weights;
  const int* out_of;       // lists: first arc out of each vertex, and the end
  const int* next;         // lists: heads of the arcs out of each vertex
  const int* place;        // new number of each of the n vertices of the matrix
  const int* sources;      // new numbers, in the order of the blocks of sources
  const int* rows;         // row of ``out`` of each source
  Out* out;
  Element* labels;         // for each group: vertices x SOURCES
  int* scratch;            // for each group: sweep: 2 x vertices stamps; lists: 3 x vertices
  u32* state;              // [0] given up, [1] next block of sources; then STATE words for each group, see below
  long long ld, limit;
  int n, vertices, chunk_count, source_count, groups;
};

namespace {

INLINE void clear(Element* labels, int vertices, int member, int members) {
  Word nothing[WORDS16];
  UNROLL for (int i = 0; i < WORDS16; i++) nothing[i] = Arithmetic::unreachable();
  const size_t vectors = (size_t)vertices * LANES * VECTORS;
  for (size_t i = (size_t)member * THREADS + threadIdx.x; i < vectors; i += (size_t)members * THREADS)
    store_far((Word*)(labels + i * PER16), nothing);
}

// Writes the rows of ``out`` of sources first ... first + count - 1: labels, transposed, in the order of the matrix.
INLINE void emit(const Search& s, const Element* labels, int first, int count, int member, int members) {
  constexpr int STRIP = LANES * PER16;  // labels of a row that are transposed at a time
  constexpr int PAD = sizeof(Element) < 4 ? 4 / sizeof(Element) : 1;
  __shared__ Element tile[TILE][STRIP + PAD];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = threadIdx.x % LANES;
  for (int t = member; t < (s.n + TILE - 1) / TILE; t += members) {
    for (int strip = 0; strip < SOURCES && strip < count; strip += STRIP) {
      __syncthreads();
      for (int r = threadIdx.x / LANES; r < TILE; r += THREADS / LANES) {
        const int v = t * TILE + r;
        if (v < s.n) {
          Word row[WORDS16];
          load_far((const Word*)(labels + (size_t)__ldg(s.place + v) * SOURCES + strip + part * PER16), row);
          UNROLL for (int i = 0; i < WORDS16; i++) ((Word*)(tile[r] + part * PER16))[i] = row[i];
        }
      }
      __syncthreads();
      for (int j = warp; j < STRIP && strip + j < count; j += WARPS) {
        Out* const row = s.out + (size_t)__ldg(s.rows + first + strip + j) * s.ld;
        UNROLL for (int h = 0; h < TILE; h += 32) {
          const int v = t * TILE + h + lane;
          if (v < s.n) __stcs(row + v, widened(tile[h + lane][j]));
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace

#ifdef FORM_SWEEP

namespace {

// State of a group: [0] arrivals, [1] stamp, [2 ... 4] whether a sweep changed a label.  Sweeps are numbered by stamps,
// which only increase over all launches; a vertex has the stamp of the sweep that is to read its changed label.
struct Group {
  volatile u32* state;
  int member, members;
  u32 waited;

  INLINE void barrier() {
    __syncthreads();
    waited++;
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd((u32*)state, 1u);
      while (state[0] < waited * members);
      __threadfence();
    }
    __syncthreads();
  }
};

// labels[head] <- min(labels[head], labels[tail] + weight) over the arcs of the lanes in ``arcs``; returns whether a
// label fell.  All lanes of the warp take part.
INLINE bool pull(Element* labels, int head, u32 arcs, int u, Element w, int lane) {
  Word before[VECTORS][WORDS16], best[VECTORS][WORDS16];
  Word* const own = (Word*)(labels + (size_t)head * SOURCES + lane * PER16);
  constexpr int STRIDE = LANES * WORDS16;  // words from one vector of a thread to its next
  UNROLL for (int q = 0; q < VECTORS; q++) {
    load_far(own + q * STRIDE, before[q]);
    UNROLL for (int i = 0; i < WORDS16; i++) best[q][i] = before[q][i];
  }
  while (arcs) {
    Word y[ARCS][VECTORS][WORDS16], weight[ARCS];
    UNROLL for (int k = 0; k < ARCS; k++) {
      const bool some = arcs != 0;
      const int from = some ? __ffs(arcs) - 1 : 0;
      arcs &= arcs - 1;
      const int tail = __shfl_sync(~0u, u, from);
      weight[k] = Arithmetic::spread(__shfl_sync(~0u, w, from));
      UNROLL for (int q = 0; q < VECTORS; q++) {
        if (some) load_far((const Word*)(labels + (size_t)tail * SOURCES + lane * PER16) + q * STRIDE, y[k][q]);
        else UNROLL for (int i = 0; i < WORDS16; i++) y[k][q][i] = Arithmetic::unreachable();
      }
    }
    UNROLL for (int k = 0; k < ARCS; k++)
      UNROLL for (int q = 0; q < VECTORS; q++)
        UNROLL for (int i = 0; i < WORDS16; i++) best[q][i] = Relaxed<Arithmetic>::of(best[q][i], y[k][q][i], weight[k]);
  }
  bool fell = false;
  UNROLL for (int q = 0; q < VECTORS; q++) {
    bool some = false;
    UNROLL for (int i = 0; i < WORDS16; i++) some |= best[q][i] != before[q][i];
    if (some) store_far(own + q * STRIDE, best[q]);
    fell |= some;
  }
  return __any_sync(~0u, fell);
}

INLINE bool sweep(const Search& s, Element* labels, const int* now, int* then, int stamp, int warp, int warps) {
  const int lane = threadIdx.x % 32;
  bool changed = false;
  for (int c = warp; c < s.chunk_count; c += warps) {
    const int begin = __ldg(s.chunks + c), end = __ldg(s.chunks + c + 1);
    for (int e0 = begin; e0 < end; e0 += 32) {
      const int e = e0 + lane;
      int u = 0, v = -1;
      Element w = zero();
      bool active = false;
      if (e < end) {
        u = __ldg(s.tails + e), v = __ldg(s.heads + e), w = s.weights[e];
        active = __ldcg(now + u) == stamp;
      }
      u32 left = __ballot_sync(~0u, active);
      while (left) {
        const int head = __shfl_sync(~0u, v, __ffs(left) - 1);
        const u32 own = left & __ballot_sync(~0u, v == head);
        left ^= own;
        if (pull(labels, head, own, u, w, lane)) {
          changed = true;
          if (lane == 0) __stcg(then + head, stamp + 1);
        }
      }
    }
  }
  return changed;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) search_sweep(const __grid_constant__ Search s) {
  const int members = gridDim.x / s.groups, group = blockIdx.x / members;
  Group g = {s.state + STATE + group * STATE, (int)blockIdx.x % members, members, 0};
  volatile u32* const changed = g.state + 2;
  Element* const labels = s.labels + (size_t)group * s.vertices * SOURCES;
  int* const stamps = s.scratch + (size_t)group * 2 * s.vertices;
  const int warp = g.member * WARPS + threadIdx.x / 32, warps = members * WARPS;
  int stamp = (int)g.state[1];
  bool given_up = false;
  for (int first = group * SOURCES; first < s.source_count && !given_up; first += s.groups * SOURCES) {
    const int count = min(SOURCES, s.source_count - first);
    clear(labels, s.vertices, g.member, members);
    if (g.member == 0 && threadIdx.x < 3) changed[threadIdx.x] = 0;
    g.barrier();
    for (int i = g.member * THREADS + threadIdx.x; i < count; i += members * THREADS) {
      const int source = __ldg(s.sources + first + i);
      labels[(size_t)source * SOURCES + i] = zero();
      __stcg(stamps + (size_t)(stamp & 1) * s.vertices + source, stamp);
    }
    g.barrier();
    for (int i = 0;; i++, stamp++) {
      int* const now = stamps + (size_t)(stamp & 1) * s.vertices;
      int* const then = stamps + (size_t)((stamp + 1) & 1) * s.vertices;
      const bool fell = sweep(s, labels, now, then, stamp, warp, warps);
      if (fell && threadIdx.x % 32 == 0) changed[i % 3] = 1;
      if (g.member == 0 && threadIdx.x == 0) changed[(i + 1) % 3] = 0;
      g.barrier();
      if (!changed[i % 3]) break;
      if (i >= s.limit) {
        given_up = true;
        break;
      }
    }
    stamp += 2;  // so that no vertex has a stamp that the next search uses
    emit(s, labels, first, count, g.member, members);
    g.barrier();
  }
  if (g.member == 0 && threadIdx.x == 0) {
    g.state[1] = stamp;
    if (given_up) s.state[0] = 1;
  }
}

#endif
#ifdef FORM_LISTS

namespace {

struct Lists {
  u32 *now, *then, *marked;           // a bit per vertex: changed in the sweep before, in this one; listed for the next
  int *list, *before, *following;     // vertices to visit in this sweep; those of the sweep before; those of the next
  int count, count_before;
};

INLINE bool bit(const u32* bits, int v) { return bits[v / 32] >> (v % 32) & 1; }

// Lists the heads of the arcs out of ``v``, each once; the LANES threads of a vertex share the arcs.
INLINE void list_heads(const Search& s, const Lists& l, int v, int part, int* length) {
  for (int e = __ldg(s.out_of + v) + part; e < __ldg(s.out_of + v + 1); e += LANES) {
    const int head = __ldg(s.next + e);
    const u32 mask = 1u << head % 32;
    if (!(atomicOr(l.marked + head / 32, mask) & mask)) l.following[atomicAdd(length, 1)] = head;
  }
}

// Visits every vertex of the list once.
INLINE void look(const Search& s, const Lists& l, Element* labels, int* length) {
  const int part = threadIdx.x % LANES, base = threadIdx.x % 32 / LANES * LANES;
  for (int i0 = threadIdx.x / 32 * (32 / LANES); i0 < l.count; i0 += THREADS / LANES) {
    const int i = i0 + base / LANES;
    const int v = i < l.count ? l.list[i] : -1;
    int e0 = v >= 0 ? __ldg(s.into + v) : 0;
    const int end = v >= 0 ? __ldg(s.into + v + 1) : 0;
    Word before[WORDS16], best[WORDS16];
    Word* const own = (Word*)(labels + (size_t)max(v, 0) * SOURCES + part * PER16);
    load_row((const Element*)own, before);
    UNROLL for (int k = 0; k < WORDS16; k++) best[k] = before[k];
    for (; __any_sync(~0u, e0 < end); e0 += LANES) {
      const int e = e0 + part;
      int u = 0;
      Element w = zero();
      bool active = false;
      if (e < end) {
        u = __ldg(s.tails + e), w = s.weights[e];
        active = bit(l.now, u);
      }
      u32 arcs = __ballot_sync(~0u, active) >> base & ((1u << LANES) - 1);
      while (__any_sync(~0u, arcs != 0)) {
        Word y[2][WORDS16], weight[2];
        UNROLL for (int k = 0; k < 2; k++) {
          const bool some = arcs != 0;
          const int from = base + (some ? __ffs(arcs) - 1 : 0);
          arcs &= arcs - 1;
          const int tail = __shfl_sync(~0u, u, from);
          weight[k] = Arithmetic::spread(__shfl_sync(~0u, w, from));
          if (some) load_row(labels + (size_t)tail * SOURCES + part * PER16, y[k]);
          else UNROLL for (int j = 0; j < WORDS16; j++) y[k][j] = Arithmetic::unreachable();
        }
        UNROLL for (int k = 0; k < 2; k++)
          UNROLL for (int j = 0; j < WORDS16; j++) best[j] = Relaxed<Arithmetic>::of(best[j], y[k][j], weight[k]);
      }
    }
    bool fell = false;
    UNROLL for (int k = 0; k < WORDS16; k++) fell |= best[k] != before[k];
    if (v >= 0 && fell) store16(own, best);
    const u32 all = __ballot_sync(~0u, v >= 0 && fell) >> base & ((1u << LANES) - 1);
    if (all) {
      if (part == 0) atomicOr(l.then + v / 32, 1u << v % 32);
      list_heads(s, l, v, part, length);
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) search_lists(const __grid_constant__ Search s) {
  extern __shared__ u32 bits[];
  __shared__ int length, drawn;
  const int words = (s.vertices + 31) / 32;
  Element* const labels = s.labels + (size_t)blockIdx.x * s.vertices * SOURCES;
  int* const scratch = s.scratch + (size_t)blockIdx.x * 3 * s.vertices;
  Lists l = {bits, bits + words, bits + 2 * words, scratch, scratch + s.vertices, scratch + 2 * (size_t)s.vertices, 0, 0};
  while (true) {
    if (threadIdx.x == 0) drawn = ((volatile u32*)s.state)[0] ? s.source_count : (int)atomicAdd(s.state + 1, 1u), length = 0;
    for (int i = threadIdx.x; i < 3 * words; i += THREADS) bits[i] = 0;
    __syncthreads();
    const long long from = (long long)drawn * SOURCES;
    if (from >= s.source_count) return;
    const int first = (int)from, count = min(SOURCES, s.source_count - first);
    clear(labels, s.vertices, 0, 1);
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += THREADS) {
      const int source = __ldg(s.sources + first + i);
      labels[(size_t)source * SOURCES + i] = zero();
      atomicOr(l.now + source / 32, 1u << source % 32);
      for (int e = __ldg(s.out_of + source); e < __ldg(s.out_of + source + 1); e++) {
        const int head = __ldg(s.next + e);
        const u32 mask = 1u << head % 32;
        if (!(atomicOr(l.marked + head / 32, mask) & mask)) l.following[atomicAdd(&length, 1)] = head;
      }
    }
    long long looked = 0;
    bool seeds = true;  // the sources are on no list, so all bits are cleared after the first sweep
    l.count = 0;
    while (true) {
      __syncthreads();
      l.count_before = l.count, l.count = length;
      int* const freed = l.before;
      l.before = l.list, l.list = l.following, l.following = freed;
      if (l.count == 0) break;
      looked += l.count;
      if (looked > s.limit) break;
      for (int i = threadIdx.x; i < l.count; i += THREADS) l.marked[l.list[i] / 32] = 0;
      __syncthreads();
      if (threadIdx.x == 0) length = 0;
      __syncthreads();
      look(s, l, labels, &length);
      __syncthreads();
      if (seeds) for (int i = threadIdx.x; i < words; i += THREADS) l.now[i] = 0;
      else for (int i = threadIdx.x; i < l.count_before; i += THREADS) l.now[l.before[i] / 32] = 0;
      seeds = false;
      u32* const empty = l.now;
      l.now = l.then, l.then = empty;
    }
    if (l.count) {  // given up
      if (threadIdx.x == 0) s.state[0] = 1;
      return;
    }
    emit(s, labels, first, count, 0, 1);
  }
}

#endif
