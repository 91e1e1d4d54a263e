#pragma once

#include <weft/deadline.h>
#include <weft/export.h>

#include <cstdint>
#include <memory>

namespace weft {

class Lane;

/// When work that was submitted is done, and what it wrote can be read.
///
/// A shared handle: copies mean the same work. Thread-safe. Keeps alive what tells of the work, not the memory that the
/// work uses; dropping it neither stops nor frees anything.
class WEFT_API Completion {
 public:
  /// Of work that is done.
  Completion() noexcept = default;

  /// Whether the work is done. Never waits, and asks no driver.
  [[nodiscard]] bool is_done() const noexcept;
  /// Waits for it: true, or false when the deadline passed first (nothing changed then). A deadline in the past polls.
  /// Errors: `device_lost`; `internal` if the device drained without completing the work. Cost: no allocation, no lock;
  /// spins, then sleeps between looks.
  [[nodiscard]] bool wait(Deadline deadline) const;

 private:
  friend struct CompletionAccess;
  Completion(std::shared_ptr<const Lane> lane, std::uint64_t run) noexcept;
  std::shared_ptr<const Lane> lane_;  // Null for work that is done.
  std::uint64_t run_ = 0;
};

}  // namespace weft
