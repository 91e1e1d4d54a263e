#pragma once

#include "context_state.h"
#include "device/handles.h"
#include <weft/context.h>
#include <weft/device_tensor.h>

#include <cstdint>
#include <vector>

namespace weft::test {

/// A stream of somebody else on a context's device, and what they queue there.
class ForeignStream {
 public:
  explicit ForeignStream(const Context& context);
  ForeignStream(const ForeignStream&) = delete;
  ForeignStream& operator=(const ForeignStream&) = delete;
  /// Waits for it.
  ~ForeignStream();

  [[nodiscard]] StreamHandle handle() const noexcept { return stream_.get(); }
  /// For the calls that take a CUDA stream.
  [[nodiscard]] void* native() const noexcept;
  [[nodiscard]] DeviceApi& api() const noexcept { return *api_; }

  /// Copies between tensors, which weft is not told of.
  void copy(const DeviceTensor& destination, const DeviceTensor& source) const;
  void fill(const DeviceTensor& destination, std::uint8_t value) const;
  void wait() const;
  [[nodiscard]] bool has_drained() const;

 private:
  std::shared_ptr<DeviceApi> api_;
  UniqueStream stream_;
};

/// Where a tensor's bytes are, for work that weft is not told of.
[[nodiscard]] DeviceAddress address_of(const DeviceTensor& tensor);

}  // namespace weft::test
