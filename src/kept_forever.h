#pragma once

#include <memory>

namespace weft {

/// Keeps `owner` as long as the process lives: what hangs on a device, or what threads that are gone may have been
/// using, can be neither waited for nor let go. Thread-safe; takes no lock.
void keep_forever(std::shared_ptr<const void> owner) noexcept;

}  // namespace weft
