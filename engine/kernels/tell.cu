// tell: copies a few words of device memory to page-locked memory of the host.

extern "C" __global__ void tell(const u32* from, u32* to, int words) {
  for (int i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}
