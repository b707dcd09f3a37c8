// sweep: fills rows of the matrix, from part to part of a graph; relax computes the products in between.
//
// X holds a batch of rows, the columns of one part next to each other.  seed: writes the lengths that are known before
// the sweep.  gather: copies columns of X in the form of relax's left side.  emit: copies finished rows in the order of
// the vertices.

namespace {

constexpr int THREADS = 256, SIDE = 32, PASS = THREADS / SIDE;
constexpr int ACROSS = 8;  // columns of a finished row that a thread copies

INLINE Element nothing() { return (Element)Arithmetic::unreachable(); }  // for uint16, the low half of the word

}  // namespace

struct Walk {
  const long long* columns;  // where each part begins in a row of X
  const int* sizes;          // vertices of each part
  const int* parents;        // the part above, or -1
  const Element* tables;     // lengths from each vertex to its part and the parts above, one after the other
  const long long* entries;  // where these lengths begin for each vertex
  const int* parts;          // the part of each vertex
};

// One block per row: ``count`` rows have a source, all other rows stay unreachable.  ``ld`` is a multiple of 16
// entries.
extern "C" __global__ void __launch_bounds__(THREADS) seed(
    Element* x, long long ld, int count, const long long* sources, const __grid_constant__ Walk walk) {
  Element* const row = x + blockIdx.x * ld;
  for (long long i = threadIdx.x; i < ld; i += THREADS) row[i] = nothing();
  if ((int)blockIdx.x >= count) return;
  __syncthreads();
  const long long v = sources[blockIdx.x];
  const Element* from = walk.tables + walk.entries[v];
  for (int part = walk.parts[v]; part >= 0; part = walk.parents[part]) {
    const int size = walk.sizes[part];
    Element* const to = row + walk.columns[part];
    for (int i = threadIdx.x; i < size; i += THREADS) to[i] = from[i];
    from += size;
  }
}

// a[k][i] = x[i][border[k]] for k < depth, unreachable from there on; a block copies SIDE x SIDE entries, and reads
// along the rows of X.
extern "C" __global__ void __launch_bounds__(THREADS) gather(
    const Element* x, long long ld, const int* border, int depth, Word* a, long long lda, int deep) {
  __shared__ Element tile[SIDE][SIDE + 1];
  const int row0 = blockIdx.x * SIDE, k0 = blockIdx.y * SIDE, along = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
  const int column = k0 + along < depth ? border[k0 + along] : -1;
  UNROLL for (int i = 0; i < SIDE; i += PASS)
    tile[down + i][along] = column < 0 ? nothing() : x[(row0 + down + i) * ld + column];
  __syncthreads();
  UNROLL for (int i = 0; i < SIDE; i += PASS)
    if (k0 + down + i < deep) a[(k0 + down + i) * lda + row0 + along] = Arithmetic::spread(tile[along][down + i]);
}

// out[i][v] = x[i][places[v]].
extern "C" __global__ void __launch_bounds__(THREADS) emit(
    const Element* x, long long ld, const int* places, Element* out, int n) {
  const Element* const row = x + blockIdx.y * ld;
  Element* const to = out + (long long)blockIdx.y * n;
  const int first = blockIdx.x * THREADS * ACROSS + threadIdx.x;
  UNROLL for (int i = 0; i < ACROSS; i++) {
    const int v = first + i * THREADS;
    if (v < n) to[v] = row[places[v]];
  }
}
