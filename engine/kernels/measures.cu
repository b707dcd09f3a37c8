// measures: reduces finished rows of distances to a few numbers.  There is one block per row everywhere.
//
// The distance of a source to itself counts in sums of weights only.  Sums of floats are added in an order that is
// always the same.

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int ABREAST = 4;  // number of limits, or of kinds of weights, that one pass over a row handles

INLINE Element nothing() { return (Element)Arithmetic::unreachable(); }  // for uint16, the low half of the word

// Returns the sum of ``x`` over all threads, to the first thread only.
template <class T> INLINE T total(T x) {
  __shared__ T sums[WARPS];
  for (int step = 16; step; step /= 2) x += __shfl_down_sync(~0u, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < WARPS; w++) x += sums[w];
  return x;
}

constexpr bool WHOLE = (Value)0.5 == (Value)0;  // whether entries are whole numbers

// Keys: whole numbers that are ordered as the entries are.
template <class E> struct Keys;
template <> struct Keys<u16> {
  typedef u32 Key;
  static INLINE Key of(u16 e) { return e; }
  static INLINE u16 back(Key k) { return (u16)k; }
};
template <> struct Keys<u32> {
  typedef u32 Key;
  static constexpr u32 TOP = 1u << 31;
  static INLINE Key of(u32 e) {
    if (WHOLE) return e ^ TOP;
    return e & TOP ? ~e : e | TOP;
  }
  static INLINE u32 back(Key k) {
    if (WHOLE) return k ^ TOP;
    return k & TOP ? k ^ TOP : ~k;
  }
};
template <> struct Keys<double> {
  typedef u64 Key;
  static constexpr u64 TOP = 1ull << 63;
  static INLINE Key of(double e) {
    const u64 bits = (u64)__double_as_longlong(e);
    return bits & TOP ? ~bits : bits | TOP;
  }
  static INLINE double back(Key k) { return __longlong_as_double((long long)(k & TOP ? k ^ TOP : ~k)); }
};
typedef Keys<Element> Keyed;
typedef Keyed::Key Key;

INLINE int highest_bit(u32 x) { return 31 - __clz(x); }
INLINE int highest_bit(u64 x) { return 63 - __clzll((long long)x); }

// The distances of a row: how many there are, and between which keys.
struct Span {
  int count;
  Key least, largest;
};

// Returns the span of a row, to all threads.
INLINE Span span_of(const Element* row, int n, int own) {
  __shared__ Key lows[WARPS], tops[WARPS];
  __shared__ Span all;
  int count = 0;
  Key low = ~(Key)0, top = 0;
  for (int j = threadIdx.x; j < n; j += THREADS) {
    const Element e = row[j];
    if (e == nothing() || j == own) continue;
    const Key key = Keyed::of(e);
    count++, low = min(low, key), top = max(top, key);
  }
  for (int step = 16; step; step /= 2) {
    low = min(low, __shfl_down_sync(~0u, low, step));
    top = max(top, __shfl_down_sync(~0u, top, step));
  }
  count = total(count);
  if (threadIdx.x % 32 == 0) lows[threadIdx.x / 32] = low, tops[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < WARPS; w++) low = min(low, lows[w]), top = max(top, tops[w]);
    all = Span{count, low, top};
  }
  __syncthreads();
  return all;
}

// Returns, to all threads, the key of rank ``rank`` (0 for the least) of a row, and subtracts the number of smaller
// keys from ``rank``.  Each pass finds eight more bits, from the first bit in which keys differ.
INLINE Key select(const Element* row, int n, int own, const Span& span, int& rank) {
  __shared__ u32 counts[256];
  __shared__ int found, left;
  if (span.least == span.largest) return span.least;
  int bit = highest_bit(span.least ^ span.largest) + 1;  // this bit and all higher ones are known
  Key known = bit < (int)(8 * sizeof(Key)) ? span.least >> bit << bit : 0;
  while (bit > 0) {
    const int shift = max(0, bit - 8), bins = 1 << (bit - shift);
    for (int i = threadIdx.x; i < bins; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += THREADS) {
      const Element e = row[j];
      if (e == nothing() || j == own) continue;
      const Key key = Keyed::of(e);
      const bool same = bit >= (int)(8 * sizeof(Key)) || (key ^ known) >> bit == 0;
      if (same) atomicAdd(counts + (int)((key >> shift) & (Key)(bins - 1)), 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int rest = rank, i = 0;
      while (rest >= (int)counts[i]) rest -= counts[i++];
      found = i, left = rest;
    }
    __syncthreads();
    known |= (Key)found << shift, rank = left, bit = shift;
  }
  return known;
}

}  // namespace

// Copies the columns wanted of each row (all if there is no list of columns), and makes entries from ``limit`` on
// unreachable.
extern "C" __global__ void __launch_bounds__(THREADS) narrow(
    const Element* from, long long ld, const int* columns, int n, Element limit, Element* to) {
  const Element* const row = from + blockIdx.x * ld;
  Element* const out = to + (long long)blockIdx.x * n;
  const Value least = Meaning<Arithmetic>::of(limit);
  for (int j = threadIdx.x; j < n; j += THREADS) {
    const Element e = row[columns ? columns[j] : j];
    out[j] = Meaning<Arithmetic>::of(e) < least ? e : nothing();
  }
}

// Sums 1 / distance, over the distances of each row that are not zero.
extern "C" __global__ void __launch_bounds__(THREADS) inverses(const __grid_constant__ Rows all, double* out) {
  const Element* const row = row_of(all);
  double sum = 0;
  for (int j = threadIdx.x; j < all.n; j += THREADS) {
    const Element e = row[j];
    const double x = (double)Meaning<Arithmetic>::of(e);
    if (e != nothing() && x != 0) sum += 1 / x;
  }
  sum = total(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Counts, for each row and each limit, the entries below the limit: out[row][limit].
extern "C" __global__ void __launch_bounds__(THREADS) within(
    const __grid_constant__ Rows all, const Element* limits, int count, long long* out) {
  const Element* const row = row_of(all);
  const int own = (int)all.sources[blockIdx.x];
  for (int first = 0; first < count; first += ABREAST) {
    Value below[ABREAST];
    int found[ABREAST] = {};
    UNROLL for (int k = 0; k < ABREAST; k++) below[k] = Meaning<Arithmetic>::of(limits[min(first + k, count - 1)]);
    for (int j = threadIdx.x; j < all.n; j += THREADS) {
      const Value x = Meaning<Arithmetic>::of(row[j]);
      UNROLL for (int k = 0; k < ABREAST; k++) found[k] += x < below[k] && j != own;
    }
    UNROLL for (int k = 0; k < ABREAST; k++) {
      const int sum = total(found[k]);
      if (threadIdx.x == 0 && first + k < count) out[blockIdx.x * (long long)count + first + k] = sum;
    }
  }
}

// Weights of some columns: weights[kind][i] belongs to column held[i].
struct Weights {
  const int* held;
  const double* weights;
  int many, kinds;
};

// Sums, for each row, kind and limit, the weights of the entries below the limit: out[row][kind][limit].
extern "C" __global__ void __launch_bounds__(THREADS) weigh(
    const __grid_constant__ Rows all, const __grid_constant__ Weights of, const Element* limits, int count,
    double* out) {
  const Element* const row = row_of(all);
  out += blockIdx.x * (long long)of.kinds * count;
  for (int kind = 0; kind < of.kinds; kind++) {
    const double* const weights = of.weights + (long long)kind * of.many;
    for (int first = 0; first < count; first += ABREAST) {
      Value below[ABREAST];
      double sums[ABREAST] = {};
      UNROLL for (int k = 0; k < ABREAST; k++) below[k] = Meaning<Arithmetic>::of(limits[min(first + k, count - 1)]);
      for (int i = threadIdx.x; i < of.many; i += THREADS) {
        const Value x = Meaning<Arithmetic>::of(row[of.held[i]]);
        const double weight = weights[i];
        UNROLL for (int k = 0; k < ABREAST; k++) sums[k] += x < below[k] ? weight : 0.0;
      }
      UNROLL for (int k = 0; k < ABREAST; k++) {
        const double sum = total(sums[k]);
        if (threadIdx.x == 0 && first + k < count) out[(long long)kind * count + first + k] = sum;
      }
    }
  }
}

// How much an opportunity at a distance counts; the numbers and the limits of decays are those of
// engine/rows/_measures.py.
struct Decay {
  double middle, value;
  int number;
};
constexpr double NO_SHARE = 0x1p-1021;

INLINE double share_of(double x, const Decay& decay) {
  constexpr double LN2 = 0.6931471805599453, PI = 3.141592653589793;
  if (decay.number == 2) return fmin(1.0, fmax(0.0, (decay.middle + decay.value / 2 - x) / decay.value));
  const bool halves = decay.number == 1;
  const double rate = halves ? -1 / decay.middle : PI / (decay.value * sqrt(3.0) * LN2);
  const double power = exp2(fmin(1023.0, fmax(-1022.0, (x - (halves ? 0.0 : decay.middle)) * rate)));
  const double share = halves ? power : (1 + exp(-decay.middle * rate * LN2)) / (1 + power);
  return share > NO_SHARE ? share : 0.0;
}

// Sums the weights, each multiplied by the share of its distance: out[row][kind][middle].
extern "C" __global__ void __launch_bounds__(THREADS) fade(
    const __grid_constant__ Rows all, const __grid_constant__ Weights of, int number, double value,
    const double* middles, int count, double* out) {
  const Element* const row = row_of(all);
  out += blockIdx.x * (long long)of.kinds * count;
  for (int k = 0; k < count; k++) {
    const Decay decay{middles[k], value, number};
    for (int first = 0; first < of.kinds; first += ABREAST) {
      double sums[ABREAST] = {};
      for (int i = threadIdx.x; i < of.many; i += THREADS) {
        const Element e = row[of.held[i]];
        if (e == nothing()) continue;
        const double share = share_of((double)Meaning<Arithmetic>::of(e), decay);
        UNROLL for (int kind = 0; kind < ABREAST; kind++)
          if (first + kind < of.kinds) sums[kind] += share * of.weights[(long long)(first + kind) * of.many + i];
      }
      UNROLL for (int kind = 0; kind < ABREAST; kind++) {
        const double sum = total(sums[kind]);
        if (threadIdx.x == 0 && first + kind < of.kinds) out[(long long)(first + kind) * count + k] = sum;
      }
    }
  }
}

// Finds quantiles of each row: out[row][share] is the distance of rank ceil(share * number of distances) - 1, at least
// 0; NaN if there are no distances.  A share is a fraction, shares[2 * i] / shares[2 * i + 1].
extern "C" __global__ void __launch_bounds__(THREADS) quantile(
    const __grid_constant__ Rows all, const long long* shares, int count, double* out) {
  const Element* const row = row_of(all);
  const int own = (int)all.sources[blockIdx.x];
  const Span span = span_of(row, all.n, own);
  for (int i = 0; i < count; i++) {
    double found = __longlong_as_double(0x7ff8000000000000ll);
    if (span.count > 0) {
      const long long above = shares[2 * i] * span.count, below = shares[2 * i + 1];
      int rank = (int)max(0ll, (above + below - 1) / below - 1);
      found = (double)Meaning<Arithmetic>::of(Keyed::back(select(row, all.n, own, span, rank)));
    }
    if (threadIdx.x == 0) out[blockIdx.x * (long long)count + i] = found;
  }
}

// Finds the ``most`` nearest columns of each row, in any order; of columns at the same distance, the first ones are
// taken.  Places for which there is no column are left unchanged.
extern "C" __global__ void __launch_bounds__(THREADS) nearest(
    const __grid_constant__ Rows all, int most, int* columns, double* distances) {
  __shared__ int less_of[WARPS], equal_of[WARPS];
  const Element* const row = row_of(all);
  const int own = (int)all.sources[blockIdx.x], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  columns += blockIdx.x * (long long)most, distances += blockIdx.x * (long long)most;
  const Span span = span_of(row, all.n, own);
  if (span.count == 0) return;
  int equal = min(most, span.count) - 1;  // the rank of the last column; select subtracts from it
  const int wanted = equal + 1;
  const Key last = select(row, all.n, own, span, equal);
  int less = 0, same = 0;  // how many columns have been found so far
  const int before = wanted - (equal + 1);  // how many columns are nearer than the last one
  for (int start = 0; start < all.n; start += THREADS) {
    const int j = start + threadIdx.x;
    const Element e = j < all.n ? row[j] : nothing();
    const bool there = e != nothing() && j != own;
    const Key key = Keyed::of(e);
    const u32 nearer = __ballot_sync(~0u, there && key < last), alike = __ballot_sync(~0u, there && key == last);
    if (lane == 0) less_of[warp] = __popc(nearer), equal_of[warp] = __popc(alike);
    __syncthreads();
    int first_less = less, first_same = same;
    for (int w = 0; w < WARPS; w++) {
      if (w < warp) first_less += less_of[w], first_same += equal_of[w];
      less += less_of[w], same += equal_of[w];
    }
    const u32 earlier = (1u << lane) - 1;
    int at = -1;
    if (there && key < last) at = first_less + __popc(nearer & earlier);
    if (there && key == last) {
      const int rank = first_same + __popc(alike & earlier);
      if (rank <= equal) at = before + rank;
    }
    if (at >= 0) columns[at] = j, distances[at] = (double)Meaning<Arithmetic>::of(e);
    __syncthreads();
  }
}
