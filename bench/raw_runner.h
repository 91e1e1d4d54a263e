#pragma once

#include "raw_graph.h"
#include "runner.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace weft::bench {

/// What a slot's model part adds to the graph.
struct RawModel {
  std::vector<DeviceFloats> scratch;
  float* answer = nullptr;  ///< In `scratch`.
  cudaGraphNode_t last{};   ///< Everything of the model comes before it.
};

/// Adds the model behind `copied_in`, which fills `input`. Called once a slot, by several threads; what it captures
/// lives as long as the slots.
using RecordRaw = std::function<RawModel(RawGraph& graph, const float* input, cudaGraphNode_t copied_in)>;

/// Slots of a stream, an executable, pinned memory and a flag each.
class RawRunner final : public Runner {
 public:
  /// Makes the slots on this many threads.
  RawRunner(std::size_t input_floats, std::size_t answer_floats, std::uint32_t slots, RecordRaw record,
            std::uint32_t threads = 1);
  ~RawRunner() override;

  [[nodiscard]] std::span<float> acquire() override;
  void submit() override;
  [[nodiscard]] std::span<const float> wait() override;
  void release() override;

 private:
  struct Slot;

  RecordRaw record_;  // Owns the weights and code that all slots share.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
};

}  // namespace weft::bench
