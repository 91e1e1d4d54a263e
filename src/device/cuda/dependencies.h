#pragma once

// For device code alone.

namespace weft::cuda {

/// Before a kernel touches bound memory or ends: waits for all that the kernels before it wrote, then lets the next
/// start. What starts early waits here in turn, so a kernel that has ended has seen the end of all before it. Without a
/// programmatic edge, and before sm_90, there is nothing to wait for.
__device__ inline void wait_for_dependencies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace weft::cuda
