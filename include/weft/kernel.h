#pragma once

#include <weft/contract.h>
#include <weft/export.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

/// Threads of a block, or blocks of a cluster.
struct Dim3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

/// Blocks of a launch. 64 bits wide, so that a count beyond the device's limit is refused and not cut.
struct Grid {
  std::uint64_t x = 1;
  std::uint64_t y = 1;
  std::uint64_t z = 1;
  friend bool operator==(const Grid&, const Grid&) = default;
};

/// `weft::grid(1, 4)`: a grid given in blocks.
[[nodiscard]] constexpr Grid grid(std::uint64_t x, std::uint64_t y = 1, std::uint64_t z = 1) noexcept {
  return {x, y, z};
}

/// Grid and dynamic shared memory of one launch. The block never varies: it belongs to the KernelSpec.
struct LaunchConfig {
  Grid grid = {};
  std::uint64_t dynamic_shared_bytes = 0;
  friend bool operator==(const LaunchConfig&, const LaunchConfig&) = default;
};

/// Computes a launch from workload words (sizes of the problem). Pure and re-entrant; it may throw `weft::Error`.
using LaunchRule = std::function<LaunchConfig(std::span<const std::uint64_t> workload)>;

/// A kernel that is compiled into the program, as `weft::kernel` of weft/cuda.h gives it.
///
/// A CUDA runtime linked statically knows the kernels of its own program or library alone, so the code that knows the
/// function also brings the call that asks its runtime.
struct NativeKernel {
  const void* function = nullptr;  ///< The host side of the `__global__` function; null where there is none.
  /// Answers the driver's handle of the function's kernel (a `CUkernel`), or null and the runtime's error. Called when
  /// a CUDA device finds the kernel.
  void* (*resolve)(const void* function, int& error) = nullptr;
};

/// Compiled code: a fatbin, a cubin or PTX text (with or without a final zero), or a kernel of the program. The bytes
/// must live until the kernel is loaded.
struct CodeImage {
  std::span<const std::byte> bytes = {};
  std::string label = {};
  NativeKernel native = {};                     ///< Instead of `bytes`.
  std::shared_ptr<const void> owner = nullptr;  ///< Keeps the bytes alive; null where the caller does.
};

/// A value for a `__device__` or `__constant__` variable of an image. See `module_global`.
struct ModuleGlobal {
  std::string name = {};  ///< As the image has it: of an extern "C" variable, or mangled.
  std::vector<std::byte> bytes = {};
  friend bool operator==(const ModuleGlobal&, const ModuleGlobal&) = default;
};

/// `module_global("scale", 0.5f)`: the value's own bytes, as many as the variable has.
template <class T>
requires std::is_trivially_copyable_v<T>
[[nodiscard]] ModuleGlobal module_global(std::string name, const T& value) {
  ModuleGlobal global{std::move(name), std::vector<std::byte>(sizeof(T))};
  std::memcpy(global.bytes.data(), &value, sizeof(T));
  return global;
}

/// What a host reference is called with: one whole launch.
struct HostLaunch {
  Grid grid = {};
  Dim3 block = {};
  std::uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte* const> parameters = {};  ///< One pointer a parameter, to its bytes.

  /// The value of parameter `index`; a binding is read as the pointer type that the kernel declares.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T get(std::size_t index) const noexcept {
    T value;
    std::memcpy(&value, parameters[index], sizeof(T));
    return value;
  }
};

/// A kernel's reference on the host: what the host device runs, and the layout that it takes for the compiled one.
struct HostKernel {
  /// Computes the whole grid. Called on the host device's worker thread; it must not throw, and must not own handles of
  /// weft, since it would then wait for itself. What throws loses the device, as a fault would.
  std::function<void(const HostLaunch&)> run = {};
  std::vector<std::uint32_t> parameter_sizes = {};  ///< Bytes of each parameter in order.
  std::uint32_t max_threads_per_block = 1024;       ///< Launch bounds.
  std::uint32_t static_shared_bytes = 0;
};

/// All that weft knows of a kernel, and the authority on it: at load the compiled layout must agree with it.
///
/// A plain value. `image`, `symbol`, `block` and `parameters` are needed; the rest has defaults.
struct KernelSpec {
  std::string label = {};  ///< For messages and the topology; `symbol` when empty.
  CodeImage image = {};
  std::string symbol = {};  ///< Name of the entry point in the image; extern "C" or mangled.
  Dim3 block = {};
  /// Blocks of a thread block cluster, at most 16; more than 8 are not portable. Each axis of a grid is a multiple of
  /// the cluster's. Where the code is compiled for a cluster this must be the same one. Anything but (1,1,1) is
  /// `unsupported` when the kernel is loaded on a GPU before sm_90.
  Dim3 cluster = {};
  /// The blocks of a launch wait for each other (grid.sync()), so that all of them must be on the device at once. A
  /// larger grid is refused.
  bool cooperative = false;
  std::uint32_t dynamic_shared_bytes = 0;  ///< Of launches given as a grid; a launch rule gives its own.
  std::vector<Parameter> parameters = {};
  /// Pointers that the compiler has added behind `parameters`, as Triton adds two. They are null in every launch, and
  /// no argument of a call.
  std::uint32_t hidden_pointers = 0;
  LaunchRule launch = {};  ///< Needed for launches given as a workload.
  /// Promises that every thread executes `griddepcontrol.wait` (cudaGridDependencySynchronize) before it touches bound
  /// memory and before it ends, and never reads bound memory through `__ldg` or `const __restrict__`. Between two such
  /// kernels that run as sm_90 code or newer the edge is programmatic: the later one starts early, from the moment when
  /// all blocks of the earlier one have executed `griddepcontrol.launch_dependents` or ended. weft does not check the
  /// promise, and a kernel that breaks it races.
  bool programmatic = false;
  std::optional<HostKernel> host =
      {};  ///< Without one the kernel plans and validates on the host device, but does not run.
  /// Values of variables of the image, written before any of its kernels runs. An image is loaded once for each list of
  /// values, so kernels that share variables have the same list. The host device looks at no code: there a host
  /// reference brings the values itself.
  std::vector<ModuleGlobal> globals = {};

  /// `label`, or `symbol` when there is none.
  [[nodiscard]] const std::string& name() const noexcept { return label.empty() ? symbol : label; }
};

/// A kernel loaded by a session: a plain handle, checked at every use.
struct KernelId {
  std::uint64_t session = 0;
  std::uint32_t index = 0;
  friend bool operator==(const KernelId&, const KernelId&) = default;
};

}  // namespace weft
