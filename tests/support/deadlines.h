#pragma once

#include <weft/deadline.h>

#include <functional>

namespace weft::test {

/// A deadline that no wait of a test reaches.
[[nodiscard]] Deadline in_a_minute();
/// A deadline that has passed.
[[nodiscard]] Deadline past();

/// Whether `holds` becomes true within half a minute: for what weft does behind work that drains.
[[nodiscard]] bool eventually(const std::function<bool()>& holds);

}  // namespace weft::test
