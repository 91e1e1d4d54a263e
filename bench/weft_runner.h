#pragma once

#include "runner.h"
#include <weft/prepared.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace weft::bench {

/// The work through weft's public API.
class WeftRunner final : public Runner {
 public:
  explicit WeftRunner(PreparedModel model);

  [[nodiscard]] std::span<float> acquire() override;
  void submit() override;
  [[nodiscard]] std::span<const float> wait() override;
  void release() override;

 private:
  PreparedModel model_;
  Deadline deadline_;  // Of the whole run: a request that hangs ends it.
  std::optional<ModelSlot> acquired_;
  std::vector<std::optional<Inference>> ring_;  // One place a slot.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
};

}  // namespace weft::bench
