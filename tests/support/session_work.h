#pragma once

#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Short words for a session's immediate work on bytes.

namespace weft::test {

/// A one-dimensional tensor of bytes, which borrows them.
[[nodiscard]] HostTensor tensor_of(std::span<const std::uint8_t> values, std::string label);

void upload(ModelSession& session, const Region& region, std::span<const std::uint8_t> values);
[[nodiscard]] std::vector<std::uint8_t> read(ModelSession& session, const Region& region);

}  // namespace weft::test
