#pragma once

#include <functional>

namespace weft {

/// Device memory that somebody else allocated and weft uses as it is.
struct AdoptedMemory {
  void* address = nullptr;  ///< On the device; a multiple of 256.
  /// Called once when nothing uses the memory any more and the work on it has drained, on whichever thread finds that
  /// out, or by the process's end not at all; may be empty. Must not throw, and must not own handles of weft.
  std::function<void()> release = {};
};

}  // namespace weft
