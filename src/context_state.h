#pragma once

#include "allocation_domain.h"
#include "buffer.h"
#include "loaded_kernel.h"
#include <weft/context.h>

#include <list>
#include <memory>
#include <mutex>

namespace weft {

/// weft's own kernels, loaded once a context.
struct OwnKernels {
  std::shared_ptr<const LoadedKernel> fill;
  std::shared_ptr<const LoadedKernel> copy;
  std::shared_ptr<const LoadedKernel> complete;
  std::shared_ptr<const LoadedKernel> copy_complete;
};

/// A stream and what work on it uses.
struct Retired {
  UniqueStream stream;
  std::shared_ptr<const void> memory;
  std::shared_ptr<const void> plan;
};

/// A list, so that a node made in good time can change hands where nothing may fail.
using Retirement = std::list<Retired>;

/// What is behind a Context.
class ContextState {
 public:
  ContextState(Device device, std::shared_ptr<DeviceApi> api, Allocator allocator);
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;
  /// Waits for retired streams.
  ~ContextState();

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] DeviceApi& api() const noexcept { return *domain_->api(); }
  [[nodiscard]] const std::shared_ptr<AllocationDomain>& domain() const noexcept { return domain_; }
  [[nodiscard]] const OwnKernels& own_kernels() const noexcept { return own_kernels_; }

  /// Takes a stream that may still run with what its work uses, and lets go of both once it has drained.
  void retire(Retirement retirement) noexcept;
  /// Lets go of what has drained by now.
  void reap() noexcept;

 private:
  Device device_;
  std::shared_ptr<AllocationDomain> domain_;
  OwnKernels own_kernels_;
  std::mutex mutex_;
  Retirement retired_;  // Guarded by mutex_.
};

/// Opens what is behind a Context to the files of the model layer.
struct ContextAccess {
  [[nodiscard]] static const std::shared_ptr<ContextState>& state(const Context& context) noexcept {
    return context.state_;
  }
};

}  // namespace weft
