// Code that all kernels share: the arithmetic of each working type, and the few places where chips differ.
//
// The loader prepends this file to each kernel source and defines ARITHMETIC as one of the structs below.  A *word* is
// what a register of the inner loop holds: one entry, or for uint16 two neighbouring entries of a row.
//
// Everything that depends on the compute capability is decided in this file and nowhere else.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_THREE_OPERAND_MINIMUM 1  // the instructions VIMNMX3 and VIADDMNMX, also for packed 16 bits ("DPX")
#else
#define HAS_THREE_OPERAND_MINIMUM 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HAS_ASYNC_COPY 1  // copies from global to shared memory that need no registers
#else
#define HAS_ASYNC_COPY 0
#endif

#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

// The number of thread blocks of relax on a multiprocessor.  Two blocks hide each other's latency where the registers
// suffice for both; elsewhere one block runs, so that no register is spilled.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#define RELAX_BLOCKS 2
#else
#define RELAX_BLOCKS 1
#endif

// ---- copies from global to shared memory ----------------------------------------------------------------------------

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Copies 16 bytes and bypasses the first-level cache, which is not coherent.
INLINE void copy16(void* to, const void* from) {
#if HAS_ASYNC_COPY
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
#else
  *(uint4*)to = __ldcg((const uint4*)from);
#endif
}

INLINE void copy_commit() {
#if HAS_ASYNC_COPY
  asm volatile("cp.async.commit_group;");
#endif
}

// Waits until at most PENDING groups of copies are incomplete.
template <int PENDING>
INLINE void copy_wait() {
#if HAS_ASYNC_COPY
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
#endif
}

// ---- flags between blocks -------------------------------------------------------------------------------------------

INLINE int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

INLINE void store_release(int* p, int v) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// ---- single instructions, kept in the order written -----------------------------------------------------------------
// ptxas keeps volatile statements in order.  In a batch of additions that share an operand, ptxas keeps that operand in
// the reuse cache.  Operand reads limit the speed of the inner loop of relax: a register bank delivers one operand per
// clock (docs/kernels.md).

INLINE u32 add_float(u32 a, u32 b) {
  u32 r;
  asm volatile("add.f32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

INLINE u32 minimum_float(u32 a, u32 b) {
  u32 r;
  asm volatile("min.f32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

INLINE u32 minimum3_int(u32 c, u32 a, u32 b) {
  u32 r;
  asm volatile("{.reg .s32 t; min.s32 t, %2, %3; min.s32 %0, t, %1;}" : "=r"(r) : "r"(c), "r"(a), "r"(b));
  return r;
}

// a * one + b: an addition on the multiply pipe.  The compiler must not know ``one``, or it would emit an addition.
INLINE u32 add_by_multiply(u32 a, u32 one, u32 b) {
  u32 r;
  asm volatile("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(one), "r"(b));
  return r;
}

// min(c, a + b), one instruction on Hopper
INLINE u32 add_minimum_int(u32 a, u32 b, u32 c) {
  u32 r;
  asm volatile("{.reg .s32 t; add.s32 t, %1, %2; min.s32 %0, t, %3;}" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

#if HAS_THREE_OPERAND_MINIMUM
INLINE u32 minimum3_pair(u32 c, u32 a, u32 b) {
  u32 r;
  asm volatile("{.reg .b32 t; min.u16x2 t, %2, %3; min.u16x2 %0, t, %1;}" : "=r"(r) : "r"(c), "r"(a), "r"(b));
  return r;
}
INLINE u32 add_minimum_pair(u32 a, u32 b, u32 c) {
  u32 r;
  asm volatile("{.reg .b32 t; add.u16x2 t, %1, %2; min.u16x2 %0, t, %3;}" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
#else
// Entries are at most 2^15 - 1, so a sum never carries into the upper half.
INLINE u32 minimum3_pair(u32 c, u32 a, u32 b) { return __vminu2(c, __vminu2(a, b)); }
INLINE u32 add_minimum_pair(u32 a, u32 b, u32 c) { return __vminu2(c, a + b); }
#endif

// ---- arithmetic -----------------------------------------------------------------------------------------------------
// Element: an entry in memory.  Word: a register of the inner loop of relax.  LANES: elements in a word.
// WIDTH: words in 16 bytes.  update(): c = min(c, a0 + b0, a1 + b1) over a thread's tile, two steps of k at once.
// one(): c = min(c, a + b) of single entries, for close (in ``Single`` form).

struct Float32Nonnegative {  // non-negative IEEE numbers are ordered like integers, +inf included
  typedef u32 Element;
  typedef u32 Word;
  typedef u32 Single;
  enum { LANES = 1, WIDTH = 4, SIGNED = 0 };
  static INLINE Word unreachable() { return 0x7f800000u; }
  static INLINE Word spread(Element e) { return e; }
  static INLINE bool negative(Single) { return false; }
  static INLINE Single one(Single c, Single a, Single b) {
    Single s = __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
    return (int)s < (int)c ? s : c;
  }
  static INLINE Single two(Single c, Single a0, Single b0, Single a1, Single b1) {
    int s = __float_as_int(__uint_as_float(a0) + __uint_as_float(b0));
    int t = __float_as_int(__uint_as_float(a1) + __uint_as_float(b1));
    return (u32)min(min(s, t), (int)c);
  }
  // Computes one row of sums at a time; overlapping half rows, pairs and columns were slower when measured.
  template <int R, int C>
  static INLINE void update(Word (&c)[R][C], const Word* a0, const Word* b0, const Word* a1, const Word* b1, u32) {
    UNROLL for (int i = 0; i < R; i++) {
      Word s[C], t[C];
      UNROLL for (int j = 0; j < C; j++) s[j] = add_float(a0[i], b0[j]);
      UNROLL for (int j = 0; j < C; j++) t[j] = add_float(a1[i], b1[j]);
      UNROLL for (int j = 0; j < C; j++) c[i][j] = minimum3_int(c[i][j], s[j], t[j]);
    }
  }
};

struct Float32Signed {
  typedef u32 Element;
  typedef u32 Word;
  typedef u32 Single;
  enum { LANES = 1, WIDTH = 4, SIGNED = 1 };
  static INLINE Word unreachable() { return 0x7f800000u; }
  static INLINE Word spread(Element e) { return e; }
  static INLINE bool negative(Single s) { return __uint_as_float(s) < 0.0f; }
  static INLINE Single one(Single c, Single a, Single b) {
    return __float_as_uint(fminf(__uint_as_float(c), __uint_as_float(a) + __uint_as_float(b)));
  }
  static INLINE Single two(Single c, Single a0, Single b0, Single a1, Single b1) { return one(one(c, a0, b0), a1, b1); }
  template <int R, int C>
  static INLINE void update(Word (&c)[R][C], const Word* a0, const Word* b0, const Word* a1, const Word* b1, u32) {
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int from = 0; from < C; from += 4) {
        Word s[4], t[4];
        UNROLL for (int j = 0; j < 4; j++) s[j] = add_float(a0[i], b0[from + j]);
        UNROLL for (int j = 0; j < 4; j++) t[j] = add_float(a1[i], b1[from + j]);
        UNROLL for (int j = 0; j < 4; j++) c[i][from + j] = minimum_float(c[i][from + j], s[j]);
        UNROLL for (int j = 0; j < 4; j++) c[i][from + j] = minimum_float(c[i][from + j], t[j]);
      }
  }
};

#ifndef FUSED_OF_8  // of eight columns, how many use the fused add-minimum; all others add on the multiply pipe
#define FUSED_OF_8 4
#endif
#ifndef FUSED_OF_6
#define FUSED_OF_6 2
#endif

struct Int32 {
  typedef u32 Element;
  typedef u32 Word;
  typedef u32 Single;
  enum { LANES = 1, WIDTH = 4, SIGNED = 1 };
  static INLINE Word unreachable() { return (1u << 30) - 1; }
  static INLINE Word spread(Element e) { return e; }
  static INLINE bool negative(Single s) { return (int)s < 0; }
  static INLINE Single one(Single c, Single a, Single b) {
    int s = (int)a + (int)b;
    return s < (int)c ? s : c;
  }
  static INLINE Single two(Single c, Single a0, Single b0, Single a1, Single b1) { return one(one(c, a0, b0), a1, b1); }
  template <int R, int C>
  static INLINE void update(Word (&c)[R][C], const Word* a0, const Word* b0, const Word* a1, const Word* b1, u32 one) {
#if HAS_THREE_OPERAND_MINIMUM
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int from = 0; from < C; from += 8) {
        auto fused = [&](int j) { return (j * FUSED_OF_8 + (i & 1) * 4) % 8 < FUSED_OF_8; };
        Word s[8], t[8];
        UNROLL for (int j = 0; j < 8; j++) if (!fused(j)) s[j] = add_by_multiply(a0[i], one, b0[from + j]);
        UNROLL for (int j = 0; j < 8; j++)
          if (fused(j)) c[i][from + j] = add_minimum_int(a0[i], b0[from + j], c[i][from + j]);
        UNROLL for (int j = 0; j < 8; j++) if (!fused(j)) t[j] = add_by_multiply(a1[i], one, b1[from + j]);
        UNROLL for (int j = 0; j < 8; j++)
          if (fused(j)) c[i][from + j] = add_minimum_int(a1[i], b1[from + j], c[i][from + j]);
        UNROLL for (int j = 0; j < 8; j++) if (!fused(j)) c[i][from + j] = minimum3_int(c[i][from + j], s[j], t[j]);
      }
#else
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < C; j++) c[i][j] = two(c[i][j], a0[i], b0[j], a1[i], b1[j]);
#endif
  }
};

struct Uint16 {  // two entries per word; sentinel + sentinel still fits 16 bits
  typedef u16 Element;
  typedef u32 Word;
  typedef u32 Single;  // close works on single entries, widened
  enum { LANES = 2, WIDTH = 4, SIGNED = 0 };
  static INLINE Word unreachable() { return 0x7fff7fffu; }
  static INLINE Word spread(Element e) { return e * 0x10001u; }
  static INLINE bool negative(Single) { return false; }
  static INLINE Single one(Single c, Single a, Single b) { return Int32::one(c, a, b); }
  static INLINE Single two(Single c, Single a0, Single b0, Single a1, Single b1) { return one(one(c, a0, b0), a1, b1); }
  template <int R, int C>
  static INLINE void update(Word (&c)[R][C], const Word* a0, const Word* b0, const Word* a1, const Word* b1, u32 one) {
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < C; j++) {
#if HAS_THREE_OPERAND_MINIMUM
        if ((i * C + j) % 6 < FUSED_OF_6) {
          c[i][j] = __viaddmin_u16x2(a0[i], b0[j], c[i][j]);
          c[i][j] = __viaddmin_u16x2(a1[i], b1[j], c[i][j]);
        } else c[i][j] = __vimin3_u16x2(c[i][j], a0[i] * one + b0[j], a1[i] * one + b1[j]);
#else
        c[i][j] = minimum3_pair(c[i][j], a0[i] + b0[j], a1[i] + b1[j]);
#endif
      }
  }
};

struct Float64 {
  typedef double Element;
  typedef double Word;
  typedef double Single;
  enum { LANES = 1, WIDTH = 2, SIGNED = 1 };
  static INLINE Word unreachable() { return __longlong_as_double(0x7ff0000000000000ll); }
  static INLINE Word spread(Element e) { return e; }
  static INLINE bool negative(Single s) { return s < 0.0; }
  static INLINE Single one(Single c, Single a, Single b) {
    const double s = a + b;
    return s < c ? s : c;
  }
  static INLINE Single two(Single c, Single a0, Single b0, Single a1, Single b1) { return one(one(c, a0, b0), a1, b1); }
  template <int R, int C>
  static INLINE void update(Word (&c)[R][C], const Word* a0, const Word* b0, const Word* a1, const Word* b1, u32) {
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < C; j++) c[i][j] = one(c[i][j], a0[i], b0[j]);
    UNROLL for (int i = 0; i < R; i++)
      UNROLL for (int j = 0; j < C; j++) c[i][j] = one(c[i][j], a1[i], b1[j]);
  }
};

typedef ARITHMETIC Arithmetic;
typedef Arithmetic::Element Element;
typedef Arithmetic::Word Word;
typedef Arithmetic::Single Single;

// ---- entries as numbers ---------------------------------------------------------------------------------------------
// Value: the number that an entry is.  Sum: the type in which numbers are added.

template <class A> struct Meaning {  // for Int32 and Uint16
  typedef int Value;
  typedef long long Sum;
  static INLINE Value of(Element e) { return (Value)e; }
  static INLINE Element from(double x) { return (Element)(int)x; }
};
struct Float32Meaning {
  typedef float Value;
  typedef double Sum;
  static INLINE Value of(u32 e) { return __uint_as_float(e); }
  static INLINE u32 from(double x) { return __float_as_uint((float)x); }
};
template <> struct Meaning<Float32Nonnegative> : Float32Meaning {};
template <> struct Meaning<Float32Signed> : Float32Meaning {};
template <> struct Meaning<Float64> {
  typedef double Value;
  typedef double Sum;
  static INLINE Value of(double e) { return e; }
  static INLINE double from(double x) { return x; }
};
typedef Meaning<Arithmetic>::Value Value;
typedef Meaning<Arithmetic>::Sum Sum;

// ---- finished rows --------------------------------------------------------------------------------------------------
// One block per row.  Row i of an answer is row ``gathered ? i : sources[i]`` of ``d`` and holds the distances from
// vertex ``sources[i]``; the entry in column ``sources[i]`` is left out (if that is -1, no entry is).

struct Rows {
  const Element* d;
  const long long* sources;
  long long ld;
  int n, gathered;
};

INLINE const Element* row_of(const Rows& r) {
  return r.d + (r.gathered ? (long long)blockIdx.x : r.sources[blockIdx.x]) * r.ld;
}

// ---- 16 bytes at once -----------------------------------------------------------------------------------------------

INLINE void load16(const u32* p, u32* r) {
  const uint4 v = *(const uint4*)p;
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}
INLINE void load16(const double* p, double* r) {
  const double2 v = *(const double2*)p;
  r[0] = v.x, r[1] = v.y;
}
INLINE void store16(u32* p, const u32* r) { *(uint4*)p = make_uint4(r[0], r[1], r[2], r[3]); }
INLINE void store16(double* p, const double* r) { *(double2*)p = make_double2(r[0], r[1]); }
