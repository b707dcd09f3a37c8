// relax: C <- min(C, A (x) B), the min-plus product, for matrices of any shape and leading dimension.
//
// A is transposed ("k-major": row k holds A[:, k]) and packed by pack.cu, with unreachable in the rows that pad k to a
// multiple of STEP; B is read in place if its rows are 16-byte aligned, else it is packed, too.  So all loads into
// shared memory are 16-byte asynchronous copies and the inner loop reads shared memory 16 bytes at a time.  Each thread
// holds ROWS x COLUMNS words of C, which it loads before and stores after the loop over k.  Only blocks at a ragged
// edge of C, or with rows of C that are not aligned, access C entry by entry.
//
// One launch may have two products (the row and the column panel of a round): blocks from ``first`` on compute the
// second.
#ifndef STAGES
#define STAGES 4
#endif

namespace {

constexpr int WIDTH = Arithmetic::WIDTH;   // words in 16 bytes
constexpr int LANES = Arithmetic::LANES;
constexpr int THREADS = 256;
constexpr int ROWS = 8, COLUMNS = sizeof(Word) == 8 ? 4 : 8;  // words of a thread
constexpr int TILE_M = 128, TILE_N = sizeof(Word) == 8 ? 64 : 128;
constexpr int STEP = sizeof(Word) == 8 ? 8 : 16;  // steps of k in a stage
constexpr int BAND = 16;  // tile rows that run together, so that their panels stay in the second-level cache
constexpr int WARPS_N = TILE_N / (8 * COLUMNS);
constexpr int STAGE_A = STEP * TILE_M, STAGE = STAGE_A + STEP * TILE_N;  // in words
static_assert((TILE_M / (4 * ROWS)) * WARPS_N == THREADS / 32, "warps must cover the tile");

// A warp covers 4 x 8 lanes; a lane's words lie in runs of WIDTH, 4 (rows) or 8 (columns) runs apart.
INLINE int row_of(int i) { return i / WIDTH * 4 * WIDTH + i % WIDTH; }
INLINE int column_of(int j) { return j / WIDTH * 8 * WIDTH + j % WIDTH; }
INLINE int first_row(int thread) { return thread / 32 / WARPS_N * 4 * ROWS + thread % 32 / 8 * WIDTH; }
INLINE int first_column(int thread) { return thread / 32 % WARPS_N * 8 * COLUMNS + thread % 8 * WIDTH; }

}  // namespace

struct Product {
  const Word* a;     // k-major, depth x (m padded to a whole tile)
  const Word* b;     // depth x n
  Element* c;        // m x n
  int m, n;          // entries
  int last_b;        // the last word of a row of B at which 16 bytes may be read
  int tiles_m, tiles_n;
  int skip_m0, skip_m1, skip_n0, skip_n1;  // tile rows and columns of C to leave unchanged
  int vector;        // whether rows of C are 16-byte aligned
};

struct Products {
  Product product[2];
  long long lda;  // words; both products share leading dimensions and depth, so that these cost no registers
  long long ldb;  // words
  long long ldc;  // elements
  int depth;      // number of steps of k, a multiple of 16
  int first;      // number of blocks of the first product
  int upper;      // whether to compute only tiles that touch the diagonal or lie above it
  u32 one;        // 1, unknown to the compiler
};

// Finds the tile of a block.  Blocks go through bands of BAND tile rows, column by column; with ``upper``, a band
// starts at the diagonal.  Returns false if the tile is left unchanged.
INLINE bool tile_of(const Product& g, int upper, int block, int& tile_m, int& tile_n) {
  if (!upper) {
    const int per = BAND * g.tiles_n, band = block / per, rest = block - band * per;
    const int rows = min(BAND, g.tiles_m - band * BAND);
    tile_m = band * BAND + rest % rows;
    tile_n = rest / rows;
  } else {
    int top = 0;
    for (;;) {
      const int rows = min(BAND, g.tiles_m - top);
      const int left = top * TILE_M / (TILE_N * LANES), count = rows * (g.tiles_n - left);
      if (block < count) {
        tile_m = top + block % rows;
        tile_n = left + block / rows;
        break;
      }
      block -= count;
      top += BAND;
    }
    if ((tile_n + 1) * TILE_N * LANES <= tile_m * TILE_M) return false;  // wholly below the diagonal
  }
  return !(tile_m >= g.skip_m0 && tile_m < g.skip_m1) && !(tile_n >= g.skip_n0 && tile_n < g.skip_n1);
}

INLINE Word load_guarded(const Element* row, int column, int n) {  // column in elements
  if (LANES == 1) return column < n ? (Word)row[column] : Arithmetic::unreachable();
  const u32 low = column < n ? (u32)row[column] : 0x7fffu, high = column + 1 < n ? (u32)row[column + 1] : 0x7fffu;
  return (Word)(low | high << 16);
}

INLINE void store_guarded(Element* row, int column, int n, Word word) {
  if (LANES == 1) {
    if (column < n) row[column] = (Element)word;
  } else {
    const u32 w = (u32)word;
    if (column < n) row[column] = (Element)(w & 0xffffu);
    if (column + 1 < n) row[column + 1] = (Element)(w >> 16);
  }
}

INLINE int thread_again() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
  return t;
}

// A thread's part of a tile of C.
struct Corner {
  Element* at;
  int rows, columns;  // rows and columns of C from here on; may be below 1
  bool whole;         // whether the tile lies inside C and its rows are aligned

  static INLINE Corner of(const Products& all, bool second, int tile_m, int tile_n, int thread) {
    const Product& g = all.product[second];
    const int row = tile_m * TILE_M + first_row(thread), column = (tile_n * TILE_N + first_column(thread)) * LANES;
    Corner r;
    r.at = g.c + (size_t)row * all.ldc + column;
    r.rows = g.m - row;
    r.columns = g.n - column;
    r.whole = g.vector && (tile_m + 1) * TILE_M <= g.m && (tile_n + 1) * TILE_N * LANES <= g.n;
    return r;
  }

  INLINE void load(const Products& all, Word (&c)[ROWS][COLUMNS]) const {
    if (whole) {
      UNROLL for (int i = 0; i < ROWS; i++)
        UNROLL for (int j = 0; j < COLUMNS; j += WIDTH)
          load16((const Word*)(at + (size_t)row_of(i) * all.ldc) + column_of(j), &c[i][j]);
    } else {
      UNROLL for (int i = 0; i < ROWS; i++)
        UNROLL for (int j = 0; j < COLUMNS; j++)
          c[i][j] = row_of(i) < rows ? load_guarded(at + (size_t)row_of(i) * all.ldc, column_of(j) * LANES, columns)
                                     : Arithmetic::unreachable();
    }
  }

  INLINE void store(const Products& all, const Word (&c)[ROWS][COLUMNS]) const {
    if (whole) {
      UNROLL for (int i = 0; i < ROWS; i++)
        UNROLL for (int j = 0; j < COLUMNS; j += WIDTH)
          store16((Word*)(at + (size_t)row_of(i) * all.ldc) + column_of(j), &c[i][j]);
    } else {
      UNROLL for (int i = 0; i < ROWS; i++)
        UNROLL for (int j = 0; j < COLUMNS; j++)
          if (row_of(i) < rows) store_guarded(at + (size_t)row_of(i) * all.ldc, column_of(j) * LANES, columns, c[i][j]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RELAX_BLOCKS) relax(const __grid_constant__ Products all) {
  extern __shared__ __align__(16) unsigned char memory[];
  Word* const shared = (Word*)memory;
  int* const place = (int*)(shared + STAGES * STAGE);  // last, so that the stages are aligned to all banks
  const bool second = (int)blockIdx.x >= all.first;
  const Product& g = all.product[second];
  int tile_m, tile_n;
  if (!tile_of(g, all.upper, (int)blockIdx.x - (second ? all.first : 0), tile_m, tile_n)) return;

  const int thread = threadIdx.x, row0 = first_row(thread), column0 = first_column(thread);
  constexpr int CHUNKS_A = TILE_M / WIDTH, CHUNKS_B = TILE_N / WIDTH;     // 16-byte chunks per row of a stage
  constexpr int PASS_A = THREADS / CHUNKS_A, PASS_B = THREADS / CHUNKS_B;  // rows of k per pass of all threads
  static_assert(STEP % PASS_A == 0 && STEP % PASS_B == 0, "passes must cover a stage");
  const Word* from_a = g.a + (size_t)tile_m * TILE_M + (size_t)(thread / CHUNKS_A) * all.lda + thread % CHUNKS_A * WIDTH;
  const int chunk_b = min(tile_n * TILE_N + thread % CHUNKS_B * WIDTH, g.last_b);  // past n any valid column will do
  const Word* from_b = g.b + (size_t)(thread / CHUNKS_B) * all.ldb + chunk_b;
  Word* const to = shared + thread * WIDTH;
  auto fetch = [&](int stage) {
    UNROLL for (int i = 0; i < STEP / PASS_A; i++)
      copy16(to + stage * STAGE + i * THREADS * WIDTH, from_a + (size_t)(i * PASS_A) * all.lda);
    UNROLL for (int i = 0; i < STEP / PASS_B; i++)
      copy16(to + stage * STAGE + STAGE_A + i * THREADS * WIDTH, from_b + (size_t)(i * PASS_B) * all.ldb);
    from_a += STEP * all.lda;
    from_b += STEP * all.ldb;
  };
  const int steps = all.depth / STEP;
  UNROLL for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) fetch(s);
    copy_commit();
  }

  Word c[ROWS][COLUMNS];
  if (thread == 0) place[0] = tile_m, place[1] = tile_n;
  Corner::of(all, second, tile_m, tile_n, thread).load(all, c);

  int stage = 0;
  const u32 one = all.one;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    const int ahead = stage == 0 ? STAGES - 1 : stage - 1;
    if (step + STAGES - 1 < steps) fetch(ahead);
    copy_commit();
    const Word* const pa = shared + stage * STAGE + row0;
    const Word* const pb = shared + stage * STAGE + STAGE_A + column0;
    UNROLL for (int k = 0; k < STEP; k += 2) {
      Word a[2][ROWS], b[2][COLUMNS];
      UNROLL for (int h = 0; h < 2; h++) {
        UNROLL for (int i = 0; i < ROWS; i += WIDTH) load16(pa + (k + h) * TILE_M + row_of(i), &a[h][i]);
        UNROLL for (int j = 0; j < COLUMNS; j += WIDTH) load16(pb + (k + h) * TILE_N + column_of(j), &b[h][j]);
      }
      Arithmetic::update<ROWS, COLUMNS>(c, a[0], b[0], a[1], b[1], one);
    }
    if (++stage == STAGES) stage = 0;
  }

  // The place of this thread's words is computed again: if it were kept during the loop, it would cost registers and
  // cause spills.
  Corner::of(all, (int)blockIdx.x >= all.first, place[0], place[1], thread_again()).store(all, c);
}
