#pragma once

#include "fragment_state.h"
#include "graph_state.h"
#include <weft/device_tensor.h>

#include <vector>

namespace weft {

struct RecordedTensors {
  std::vector<DeviceTensor> inputs;
  std::vector<DeviceTensor> outputs;
};

/// Appends a fragment to a graph; `inputs` are null where the fragment's inputs get storage of their own. On an error
/// the graph is as it was.
[[nodiscard]] RecordedTensors record_fragment(const FragmentState& fragment, GraphState& graph,
                                              const std::vector<DeviceTensor>* inputs);

}  // namespace weft
