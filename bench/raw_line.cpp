#include "line.h"
#include "raw_runner.h"
#include "raw_twin.h"
#include <weft/kernels.h>

#include <memory>

namespace weft::bench {

std::unique_ptr<Runner> raw_line(std::uint32_t gpu, std::uint32_t nodes, std::uint32_t slots, std::uint32_t threads) {
  cuda_check(cudaSetDevice(static_cast<int>(gpu)));
  const auto scale = std::make_shared<const ShippedKernel>(kernels::scale_spec());
  const RecordRaw record = [scale, nodes](RawGraph& graph, const float* input, cudaGraphNode_t copied_in) {
    RawModel model;
    model.scratch.push_back(device_floats(kLineFloats));
    model.scratch.push_back(device_floats(kLineFloats));
    model.last = copied_in;
    const float* from = input;
    constexpr std::uint64_t kCount = kLineFloats;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      model.answer = model.scratch[node % 2].get();
      const float factor = line_factor(node);
      model.last = graph.kernel(scale->function(), scale->grid({kCount}), scale->block(),
                                {&from, &model.answer, &factor, &kCount}, {model.last});
      from = model.answer;
    }
    return model;
  };
  return std::make_unique<RawRunner>(kLineFloats, kLineFloats, slots, record, threads);
}

}  // namespace weft::bench
