#pragma once

#include "device/host/host_device.h"
#include "device/registry.h"
#include <weft/buffer.h>
#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/readback.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Short words for work on a context's memory that tests of it need and do not examine.

namespace weft::test {

[[nodiscard]] Context open_context(ContextOptions options = {});

/// A one-dimensional u8 tensor.
[[nodiscard]] TensorDesc bytes_desc(std::uint64_t count);
[[nodiscard]] DeviceTensor upload(const Context& context, const std::vector<std::uint8_t>& values,
                                  std::string label = "t");
/// Downloads and waits.
[[nodiscard]] std::vector<std::uint8_t> values(const DeviceTensor& tensor);
[[nodiscard]] std::vector<std::uint8_t> values(const Buffer& buffer);

/// The live bytes of a context: requested, reserved, staging.
[[nodiscard]] std::vector<std::uint64_t> live(const Context& context);

/// A context of a host device that the test holds, in place of the suite's.
struct HeldContext {
  explicit HeldContext(ContextOptions options = {}, HostOptions host = {});
  /// Its worker picks among what is ready, so that nothing but the order which weft gives can be relied on.
  explicit HeldContext(std::uint64_t seed) : HeldContext({}, {.shuffled = true, .seed = seed}) {}
  /// Releases it: what is dropped after this need not wait.
  ~HeldContext();

  std::shared_ptr<HostDevice> device;
  ScopedDevice scoped{Device::host(), device};
  Context context;
};

}  // namespace weft::test
