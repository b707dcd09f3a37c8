// A peer: min-plus products by CUTLASS's SIMT kernels with addition and minimum for multiplication and addition, which is
// how cuASR makes its SRGEMM, in cuASR's tiles.  cuASR itself is built on CUTLASS 2; this builds with the headers of
// nvidia-cutlass 4.2 from PyPI (cutlass_library/source/include), two lines of a copy of them changed:
//
//   cutlass/arch/mma_sm50.h, float:  d[0] = fminf(a[0] + b[0], c[0]);
//   cutlass/gemm/kernel/gemm.h:      accumulators.fill(CUDART_INF_F);   (and #include <math_constants.h>)
//
//   nvcc -std=c++17 -O3 -shared -Xcompiler -fPIC -I include -arch=sm_90 -o cutlass_minplus.so cutlass_minplus.cu

#include <cuda_runtime.h>

#include "cutlass/cutlass.h"
#include "cutlass/gemm/device/gemm.h"

namespace {

// C = min(product, C)
struct Least {
  using ElementOutput = float;
  using ElementAccumulator = float;
  using ElementCompute = float;
  using ElementC = float;
  using ElementD = float;
  static int const kCount = 1;
  using FragmentOutput = cutlass::Array<float, 1>;
  using FragmentAccumulator = cutlass::Array<float, 1>;
  using FragmentSource = cutlass::Array<float, 1>;
  struct Params {};
  CUTLASS_HOST_DEVICE Least(Params const&) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return true; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}
  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& a, FragmentSource const& c) const {
    FragmentOutput d;
    d[0] = fminf(a[0], c[0]);
    return d;
  }
  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& a) const { return a; }
};

template <class Arch, class Block, class Warp, int STAGES>
int product(float* c, const float* a, const float* b, int m, int n, int k, cudaStream_t stream) {
  using Row = cutlass::layout::RowMajor;
  using Gemm = cutlass::gemm::device::Gemm<
      float, Row, float, Row, float, Row, float, cutlass::arch::OpClassSimt, Arch, Block, Warp,
      cutlass::gemm::GemmShape<1, 1, 1>, Least, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, STAGES, 1, 1>;
  Gemm gemm;
  return (int)gemm({{m, n, k}, {a, k}, {b, n}, {c, n}, {c, n}, {}}, nullptr, stream);
}

using cutlass::gemm::GemmShape;
using Sm50 = cutlass::arch::Sm50;
using Sm80 = cutlass::arch::Sm80;

}  // namespace

extern "C" int minplus(int shape, float* c, const float* a, const float* b, int m, int n, int k, void* stream) {
  cudaStream_t s = (cudaStream_t)stream;
  switch (shape) {
    case 0: return product<Sm80, GemmShape<64, 128, 16>, GemmShape<32, 64, 16>, 3>(c, a, b, m, n, k, s);
    case 1: return product<Sm50, GemmShape<128, 128, 8>, GemmShape<64, 32, 8>, 2>(c, a, b, m, n, k, s);
    case 2: return product<Sm80, GemmShape<128, 128, 8>, GemmShape<32, 64, 8>, 4>(c, a, b, m, n, k, s);
    case 3: return product<Sm50, GemmShape<128, 128, 8>, GemmShape<32, 64, 8>, 2>(c, a, b, m, n, k, s);
  }
  return -1;
}
