#pragma once

#include <weft/prepared.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft {

/// Opens a PreparedModel and its requests to the files of the layers below.
struct PreparedAccess {
  /// Whether there is another handle to the pool: a model, a slot, an inference or what was made of one.
  [[nodiscard]] static bool is_shared(const PreparedModel& model) noexcept { return model.pool_.use_count() > 1; }

  /// Null where it is moved from, as the next.
  [[nodiscard]] static const std::shared_ptr<SlotPool>& pool(const ModelSlot& slot) noexcept { return slot.pool_; }
  [[nodiscard]] static std::uint32_t slot(const ModelSlot& slot) noexcept { return slot.slot_; }
  [[nodiscard]] static const std::shared_ptr<SlotPool>& pool(const Inference& run) noexcept { return run.pool_; }
  [[nodiscard]] static std::uint32_t slot(const Inference& run) noexcept { return run.slot_; }
  [[nodiscard]] static std::size_t form(const Inference& run) noexcept { return run.form_; }
  /// Where outputs are copied to; none where they stay in the slot.
  [[nodiscard]] static const std::vector<DeviceTensor>& into(const Inference& run) noexcept { return run.into_; }
  [[nodiscard]] static const std::shared_ptr<SlotPool>& pool(const PreparedModel& model) noexcept {
    return model.pool_;
  }
};

}  // namespace weft
