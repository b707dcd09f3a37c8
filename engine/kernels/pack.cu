// pack: copies rectangles of a matrix in the forms that relax reads, up to six in one launch.
// mirror: copies the part of a matrix above the diagonal to the part below it.
//
// A job copies ``rows`` x ``columns`` entries of ``from``, as they are or transposed, to ``to``, which is ``to_rows`` x
// ``to_columns`` and becomes unreachable outside the source.  With ``spread`` each entry becomes a word (uint16: the
// entry in both halves), the form of A.

namespace {
constexpr int SIDE = 32, THREADS = 256, PASS = THREADS / SIDE;  // a block copies SIDE x SIDE entries
}

struct Job {
  const Element* from;
  void* to;
  long long ld_from, ld_to;  // elements of from; elements or words of to
  int rows, columns, to_rows, to_columns;
  int transposed, spread, blocks;
};

struct Jobs {
  Job job[6];
  int count;
};

INLINE void put(const Job& j, int row, int column, Element e) {
  if (row >= j.to_rows || column >= j.to_columns) return;
  const size_t at = (size_t)row * j.ld_to + column;
  if (j.spread) ((Word*)j.to)[at] = Arithmetic::spread(e);
  else ((Element*)j.to)[at] = e;
}

extern "C" __global__ void __launch_bounds__(THREADS) pack(const __grid_constant__ Jobs all) {
  __shared__ Element tile[SIDE][SIDE + 1];
  int block = blockIdx.x, which = 0;
  while (which + 1 < all.count && block >= all.job[which].blocks) block -= all.job[which++].blocks;
  const Job& j = all.job[which];
  const int across = (j.to_columns + SIDE - 1) / SIDE;
  const int row0 = block / across * SIDE, column0 = block % across * SIDE;  // in ``to``
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const Element nothing = (Element)Arithmetic::unreachable();  // for uint16, the low half of the word
  if (!j.transposed) {
    UNROLL for (int i = 0; i < SIDE; i += PASS) {
      const int r = row0 + y + i, c = column0 + x;
      put(j, r, c, r < j.rows && c < j.columns ? j.from[(size_t)r * j.ld_from + c] : nothing);
    }
    return;
  }
  UNROLL for (int i = 0; i < SIDE; i += PASS) {
    const int r = column0 + y + i, c = row0 + x;
    tile[y + i][x] = r < j.rows && c < j.columns ? j.from[(size_t)r * j.ld_from + c] : nothing;
  }
  __syncthreads();
  UNROLL for (int i = 0; i < SIDE; i += PASS) put(j, row0 + y + i, column0 + x, tile[x][y + i]);
}

// d[j][i] = d[i][j] for i < j.  Block (x, y) copies the tile at row y, column x >= y.
extern "C" __global__ void __launch_bounds__(THREADS) mirror(Element* d, long long ld, int n) {
  __shared__ Element tile[SIDE][SIDE + 1];
  if (blockIdx.x < blockIdx.y) return;
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, row0 = blockIdx.y * SIDE, column0 = blockIdx.x * SIDE;
  UNROLL for (int i = 0; i < SIDE; i += PASS)
    if (row0 + y + i < n && column0 + x < n) tile[y + i][x] = d[(size_t)(row0 + y + i) * ld + column0 + x];
  __syncthreads();
  UNROLL for (int i = 0; i < SIDE; i += PASS) {
    const int r = column0 + y + i, c = row0 + x;
    if (r < n && c < r) d[(size_t)r * ld + c] = tile[x][y + i];
  }
}
