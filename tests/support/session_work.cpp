#include "support/session_work.h"

#include <utility>

namespace weft::test {

HostTensor tensor_of(std::span<const std::uint8_t> values, std::string label) {
  return {TensorDesc(DType::u8, {values.size()}), std::as_bytes(values), std::move(label)};
}

void upload(ModelSession& session, const Region& region, std::span<const std::uint8_t> values) {
  session.upload(region, std::as_bytes(values));
}

std::vector<std::uint8_t> read(ModelSession& session, const Region& region) {
  std::vector<std::uint8_t> values(region.bytes);
  session.read(region, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace weft::test
