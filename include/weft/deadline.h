#pragma once

#include <chrono>

namespace weft {

/// A point in time that a wait ends at. One in the past makes a wait a single look.
using Deadline = std::chrono::steady_clock::time_point;

}  // namespace weft
