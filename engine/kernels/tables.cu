// tables: distances from the tables of a prepared graph, which lie in device memory as they lie on disk.
//
// The line of a vertex is its row of the table of its part; the last ``meet`` entries of two lines concern the same
// vertices.  merge: computes pairs, each the least sum over two lines.  multiply: computes a block, tile by tile, as a
// min-plus product of panels of lines.  across, descend, present: compute whole rows, from the highest parts downwards.
//
// X holds a batch of rows transposed: the entries of all rows at one position lie next to each other.

namespace {

constexpr int THREADS = 256;
constexpr int PAIR = 16;                               // threads that merge one pair
constexpr int COLUMNS = sizeof(Word) == 8 ? 16 : 32;   // columns of a part that a thread holds in descend
constexpr int DEEP = 16;                               // entries of a border that descend takes at a time
constexpr int AHEAD = 4;                               // loads of X that a thread has in flight
constexpr int SIDE = 64, HELD = 4, SLICE = 16;         // multiply: side of a tile, of a thread's part; depth of a slice
constexpr int SQUARE = 32;                             // present: side of a transposed square

INLINE Single nothing() { return (Single)(Element)Arithmetic::unreachable(); }  // for uint16, the low half of the word

// Returns an entry in its final form: unreachable if it is above every distance.
INLINE Element shown(Single value, Single limit) {
  value = Arithmetic::one(nothing(), value, (Single)0);  // the sum makes 0.0 of -0.0
  return (Element)(Arithmetic::one(limit, value, (Single)0) == value ? value : nothing());
}

}  // namespace

struct Line {
  long long end;  // where the line ends in its table
  int part;       // the part of its vertex
  int place;      // multiply: the row or column of the block
};

// The tree of parts.  ``meets`` has one row for each power of two: entry i of row k is the least width of the tables of
// the parents of parts i to i + 2^k - 1, 0 where one of these has no parent.  Parts are numbered children first, so the
// parents of the parts numbered between two parts include the lowest part above both, and no part above that one.
struct Tree {
  const int* meets;
  const int* widths;          // width of the table of each part
  const int* lows;            // the first part below each part, the part itself where there is none
  const int* sizes;           // vertices of each part
  const long long* starts;    // the first position of each part
  const long long* ends;      // where the border of each part begins
  const int* borders;         // positions of border vertices
  const long long* begins;    // where the lengths from each border to its part begin
  int parts;
};

INLINE int meet(const Tree& tree, int a, int b) {
  if (a == b) return tree.widths[a];
  const int low = min(a, b), high = max(a, b), k = 31 - __clz(high - low);
  const int* const row = tree.meets + (long long)k * tree.parts;
  return min(row[low], row[high - (1 << k)]);
}

// out[i] = the distance from sources[i] to targets[i]; PAIR threads share a pair.
extern "C" __global__ void __launch_bounds__(THREADS) merge(
    const __grid_constant__ Tree tree, const Element* there, const Element* back, const Line* from, const Line* to,
    const long long* sources, const long long* targets, Element* out, long long count, const Element limit) {
  const long long pair = (long long)blockIdx.x * (THREADS / PAIR) + threadIdx.x / PAIR;
  const int lane = threadIdx.x % PAIR;
  Single best = nothing();
  if (pair < count) {
    const Line a = from[sources[pair]], b = to[targets[pair]];
    const int wide = meet(tree, a.part, b.part);
    const Element *pa = there + a.end - wide, *pb = back + b.end - wide;
    int k = lane;
    for (; k + 3 * PAIR < wide; k += 4 * PAIR) {
      Single s[4], t[4];
      UNROLL for (int i = 0; i < 4; i++) s[i] = (Single)pa[k + i * PAIR], t[i] = (Single)pb[k + i * PAIR];
      UNROLL for (int i = 0; i < 4; i++) best = Arithmetic::one(best, s[i], t[i]);
    }
    for (; k < wide; k += PAIR) best = Arithmetic::one(best, (Single)pa[k], (Single)pb[k]);
  }
  UNROLL for (int apart = PAIR / 2; apart > 0; apart /= 2)
    best = Arithmetic::one(best, __shfl_xor_sync(0xffffffffu, best, apart), (Single)0);
  if (lane == 0 && pair < count) out[pair] = shown(best, (Single)limit);
}

// A tile of a block: ``rows`` and ``columns`` lines, sorted by part.  All pairs of a tile have the last ``most``
// entries of their lines in common, which are multiplied; further entries that some pairs have in common are merged.
extern "C" __global__ void __launch_bounds__(THREADS) multiply(
    const __grid_constant__ Tree tree, const Element* there, const Element* back, const Line* from, const Line* to,
    int rows, int columns, Element* out, long long ld, const Element limit) {
  __shared__ Single left[SLICE][SIDE + 1], right[SLICE][SIDE + 1];
  __shared__ Line above[SIDE], beside[SIDE];
  const int row0 = blockIdx.y * SIDE, column0 = blockIdx.x * SIDE, thread = threadIdx.x;
  if (thread < SIDE) above[thread] = from[min(row0 + thread, rows - 1)];
  else if (thread < 2 * SIDE) beside[thread - SIDE] = to[min(column0 + thread - SIDE, columns - 1)];
  __syncthreads();
  const int low = min(above[0].part, beside[0].part), high = max(above[SIDE - 1].part, beside[SIDE - 1].part);
  const int most = meet(tree, low, high), i0 = thread / 16, j0 = thread % 16;
  Single c[HELD][HELD];
  UNROLL for (int i = 0; i < HELD; i++) UNROLL for (int j = 0; j < HELD; j++) c[i][j] = nothing();
  for (int k0 = 0; k0 < most; k0 += SLICE) {
    UNROLL for (int i = 0; i < SIDE; i += THREADS / SLICE) {
      const int line = i + thread / SLICE, k = thread % SLICE;
      const bool inside = k0 + k < most;
      left[k][line] = inside ? (Single)there[above[line].end - most + k0 + k] : nothing();
      right[k][line] = inside ? (Single)back[beside[line].end - most + k0 + k] : nothing();
    }
    __syncthreads();
    UNROLL for (int k = 0; k < SLICE; k++) {
      Single a[HELD], b[HELD];
      UNROLL for (int i = 0; i < HELD; i++) a[i] = left[k][i0 + 16 * i];
      UNROLL for (int j = 0; j < HELD; j++) b[j] = right[k][j0 + 16 * j];
      UNROLL for (int i = 0; i < HELD; i++)
        UNROLL for (int j = 0; j < HELD; j++) c[i][j] = Arithmetic::one(c[i][j], a[i], b[j]);
    }
    __syncthreads();
  }
  UNROLL for (int i = 0; i < HELD; i++)
    UNROLL for (int j = 0; j < HELD; j++) {
      const Line a = above[i0 + 16 * i], b = beside[j0 + 16 * j];
      if (row0 + i0 + 16 * i >= rows || column0 + j0 + 16 * j >= columns) continue;
      const int wide = meet(tree, a.part, b.part);
      Single best = c[i][j];
      for (int k = wide; k > most; k--)
        best = Arithmetic::one(best, (Single)there[a.end - k], (Single)back[b.end - k]);
      out[a.place * ld + b.place] = shown(best, (Single)limit);
    }
}

// Copies the lengths from the border of each part to the part, shape (border, size), from the tables of the opposite
// direction; one block per part.  ``owners``: the part of each position.
extern "C" __global__ void __launch_bounds__(THREADS) across(
    const __grid_constant__ Tree tree, const Element* other, const long long* tables, const int* owners, Element* to) {
  const int part = blockIdx.x, size = tree.sizes[part], wide = tree.widths[part];
  const int depth = (int)(tree.ends[part + 1] - tree.ends[part]);
  const int* const border = tree.borders + tree.ends[part];
  for (long long i = threadIdx.x; i < (long long)size * depth; i += THREADS) {
    const int j = (int)(i / depth), k = (int)(i % depth), above = owners[border[k]];
    const long long column = wide - tree.widths[above] + (border[k] - tree.starts[above]);
    to[tree.begins[part] + (long long)k * size + j] = other[tables[part] + (long long)j * wide + column];
  }
}

// Fills some columns of a part for THREADS rows, once the parts above are finished.  ``items``: a part, and the first
// of at most COLUMNS columns.  Rows from ``count`` on stay unreachable.
extern "C" __global__ void __launch_bounds__(THREADS) descend(
    const __grid_constant__ Tree tree, const int2* items, const Element* tables, const Element* lengths,
    const Line* lines, int count, Element* x, long long ld) {
  __shared__ __align__(16) Single step[DEEP][COLUMNS];
  __shared__ long long border[DEEP];
  const int2 item = items[blockIdx.x];
  const int part = item.x, first = item.y, thread = threadIdx.x, row = blockIdx.y * THREADS + thread;
  const int columns = min(COLUMNS, tree.sizes[part] - first), size = tree.sizes[part];
  const long long at = tree.ends[part];
  const int depth = (int)(tree.ends[part + 1] - at);
  Single c[COLUMNS];
  UNROLL for (int j = 0; j < COLUMNS; j++) c[j] = nothing();
  if (row < count) {
    const Line line = lines[row];
    if (tree.lows[part] <= line.part && line.part <= part) {
      const Element* const own = tables + line.end - tree.widths[part] + first;
      UNROLL for (int j = 0; j < COLUMNS; j++) if (j < columns) c[j] = (Single)own[j];
    }
  }
  for (int k0 = 0; k0 < depth; k0 += DEEP) {
    const int deep = min(DEEP, depth - k0);
    __syncthreads();
    for (int i = thread; i < DEEP * COLUMNS; i += THREADS) {
      const int k = i / COLUMNS, j = i % COLUMNS;
      step[k][j] = k < deep && j < columns
                       ? (Single)lengths[tree.begins[part] + (long long)(k0 + k) * size + first + j] : nothing();
    }
    if (thread < DEEP) border[thread] = (long long)tree.borders[at + k0 + min(thread, deep - 1)] * ld;
    __syncthreads();
    if (row < ld)
      for (int k = 0; k < deep; k += AHEAD) {
        Single a[AHEAD];
        UNROLL for (int h = 0; h < AHEAD; h++) a[h] = (Single)x[border[k + h] + row];
        UNROLL for (int h = 0; h < AHEAD; h++)
          UNROLL for (int j = 0; j < COLUMNS; j += Arithmetic::WIDTH) {
            Single s[Arithmetic::WIDTH];
            load16(&step[k + h][j], s);
            UNROLL for (int l = 0; l < Arithmetic::WIDTH; l++) c[j + l] = Arithmetic::one(c[j + l], a[h], s[l]);
          }
      }
  }
  if (row < ld) {
    Element* const to = x + (tree.starts[part] + first) * ld + row;
    UNROLL for (int j = 0; j < COLUMNS; j++) if (j < columns) to[j * ld] = (Element)c[j];
  }
}

// out[i][j] = x[places[j]][i]: finished rows in the order of ``places``; a block copies SQUARE x SQUARE.
extern "C" __global__ void __launch_bounds__(THREADS) present(
    const Element* x, long long ld, const int* places, int columns, Element* out, long long ld_out, int rows,
    const Element limit) {
  __shared__ Element tile[SQUARE][SQUARE + 1];
  const int along = threadIdx.x % SQUARE, down = threadIdx.x / SQUARE;
  const int row0 = blockIdx.y * SQUARE;
  const long long column0 = (long long)blockIdx.x * SQUARE;
  UNROLL for (int j = down; j < SQUARE; j += THREADS / SQUARE)
    if (column0 + j < columns && row0 + along < rows) tile[j][along] = x[places[column0 + j] * ld + row0 + along];
  __syncthreads();
  UNROLL for (int i = down; i < SQUARE; i += THREADS / SQUARE)
    if (column0 + along < columns && row0 + i < rows)
      out[(row0 + i) * ld_out + column0 + along] = shown((Single)tile[along][i], (Single)limit);
}
