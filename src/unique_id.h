#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

/// A number that no session or graph of this process has had. Never 0. Thread-safe.
[[nodiscard]] inline std::uint64_t next_unique_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace weft
