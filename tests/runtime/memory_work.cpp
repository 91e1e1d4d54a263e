#include "runtime/memory_work.h"

#include "support/deadlines.h"
#include "support/device.h"
#include <weft/error.h>

#include <cstring>
#include <span>
#include <utility>

namespace weft::test {

Context open_context(ContextOptions options) { return Context::open(test_device(), std::move(options)); }

TensorDesc bytes_desc(std::uint64_t count) { return {DType::u8, {count}}; }

DeviceTensor upload(const Context& context, const std::vector<std::uint8_t>& values, std::string label) {
  return context.upload({bytes_desc(values.size()), std::as_bytes(std::span(values)), std::move(label)});
}

std::vector<std::uint8_t> values(const DeviceTensor& tensor) {
  Readback readback = tensor.download();
  if (!readback.wait(in_a_minute())) throw Error(ErrorCode::internal, "A download of the test takes over a minute.");
  const std::span<const std::byte> bytes = readback.bytes(0);
  std::vector<std::uint8_t> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

std::vector<std::uint8_t> values(const Buffer& buffer) { return values(buffer.tensor(bytes_desc(buffer.bytes()))); }

std::vector<std::uint64_t> live(const Context& context) {
  const MemoryStatistics memory = context.memory();
  return {memory.requested.live_bytes, memory.reserved.live_bytes, memory.staging.live_bytes};
}

HeldContext::HeldContext(ContextOptions options, HostOptions host)
    : device(make_host_device(std::move(host))), context(Context::open(Device::host(), std::move(options))) {}

HeldContext::~HeldContext() { device->drain(); }

}  // namespace weft::test
