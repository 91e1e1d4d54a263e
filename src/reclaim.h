#pragma once

#include <weft/error.h>

#include <memory>

namespace weft {

/// Who keeps memory until the work that uses it has drained, and learns of that only by looking.
class Reclaimer {
 public:
  /// Lets go of what has drained by now. Thread-safe.
  virtual void reap() noexcept = 0;

 protected:
  Reclaimer() noexcept = default;
  ~Reclaimer() = default;
};

/// Has `reclaim` ask it, as long as it lives. Thread-safe.
void add_reclaimer(std::weak_ptr<Reclaimer> reclaimer);

/// Lets go of what has drained anywhere in the process. Not under a lock: allocators and weights that go call back, and
/// the last handle of a context may go here. Thread-safe; does nothing once the process is not running any more.
void reclaim();

/// Runs `take`, and where it is `busy` once more behind a reclaim. As `reclaim`, not under a lock.
template <class Take>
auto take_or_reclaim(Take&& take) {
  try {
    return take();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::busy) throw;
  }
  reclaim();
  return take();
}

}  // namespace weft
