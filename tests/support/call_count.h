#pragma once

#include <cstdint>
#include <iosfwd>

namespace weft::test {

/// What a warm request does without.
struct Calls {
  std::uint64_t news = 0;     ///< By operator new, each of which is one of the mallocs, too.
  std::uint64_t mallocs = 0;  ///< Of the malloc family, but for free.
  std::uint64_t mutexes = 0;  ///< Locked or tried, as the next.
  std::uint64_t rwlocks = 0;
  std::uint64_t conditions = 0;  ///< Waits and wakes.

  friend bool operator==(const Calls&, const Calls&) = default;
};
std::ostream& operator<<(std::ostream& out, const Calls& calls);

/// The calls of one thread, which this program takes on their way to the C library. Under a sanitizer, which takes them
/// itself, operator new alone is counted: cases that need the rest have the tag [counted] and do not run there.
struct CallCount {
  bool in_device_call = false;  ///< Set by who calls the device.
  Calls inside;                 ///< While it was set.
  Calls outside;
  /// Counted down by operator new, which fails as it gets to 0: for tests of what happens without memory.
  std::uint64_t failing_new = 0;
};

/// Blocks of the whole process that operator new has allocated and that are not freed.
[[nodiscard]] std::int64_t live_blocks() noexcept;

extern constinit thread_local CallCount call_count;

}  // namespace weft::test
