#pragma once

#include "runner.h"
#include <weft/prepared.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace weft::bench {

/// The work through weft's public API.
class WeftRunner final : public Runner {
 public:
  /// What the caller fills of an acquired slot, after what it gets in every request.
  using Input = std::function<std::span<float>(ModelSlot& slot)>;

  explicit WeftRunner(
      PreparedModel model, Input input = [](ModelSlot& slot) { return slot.input<float>(0); });

  [[nodiscard]] std::span<float> acquire() override;
  void submit() override;
  [[nodiscard]] std::span<const float> wait() override;
  void release() override;

 private:
  PreparedModel model_;
  Input input_;
  Deadline deadline_;  // Of the whole run: a request that hangs ends it.
  std::optional<ModelSlot> acquired_;
  std::vector<std::optional<Inference>> ring_;  // One place a slot.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
};

}  // namespace weft::bench
