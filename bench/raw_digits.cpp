#include "raw_runner.h"
#include "raw_twin.h"
#include <weft/kernels.h>

#include <cstddef>
#include <memory>

namespace weft::bench {

namespace {

struct RawLayer {
  explicit RawLayer(const digits::Layer& layer)
      : in(layer.in), out(layer.out), weight(device_floats(layer.weight)), bias(device_floats(layer.bias)) {}

  std::uint32_t in;
  std::uint32_t out;
  DeviceFloats weight;
  DeviceFloats bias;
};

/// What all slots share.
struct RawWeights {
  explicit RawWeights(const digits::Layers& layers) : fc1(layers[0]), fc2(layers[1]), fc3(layers[2]) {}

  ShippedKernel linear_relu{kernels::linear_relu_spec()};
  ShippedKernel linear_split{kernels::linear_split_spec()};
  RawLayer fc1;
  RawLayer fc2;
  RawLayer fc3;
};

}  // namespace

std::unique_ptr<Runner> raw_digits(std::uint32_t gpu, const digits::Layers& layers, std::uint32_t batch,
                                   std::uint32_t slots) {
  cuda_check(cudaSetDevice(static_cast<int>(gpu)));
  const auto weights = std::make_shared<const RawWeights>(layers);
  const RecordRaw record = [weights, batch](RawGraph& graph, const float* input, cudaGraphNode_t copied_in) {
    const RawWeights& w = *weights;
    RawModel model;
    const auto scratch = [&](std::uint32_t width) {
      model.scratch.push_back(device_floats(std::size_t{batch} * width));
      return model.scratch.back().get();
    };
    const auto relu = [&](const RawLayer& layer, const float* x, float* y, cudaGraphNode_t after) {
      const float* weight = layer.weight.get();
      const float* bias = layer.bias.get();
      return graph.kernel(w.linear_relu.function(), w.linear_relu.grid({batch, layer.out}), w.linear_relu.block(),
                          {&x, &weight, &bias, &y, &batch, &layer.in, &layer.out}, {after});
    };
    float* wide = scratch(w.fc1.out);
    float* hidden = scratch(w.fc2.out);
    float* logits = scratch(w.fc3.out);
    const cudaGraphNode_t cleared = graph.zero(logits, std::size_t{batch} * w.fc3.out);
    const cudaGraphNode_t encoded = relu(w.fc2, wide, hidden, relu(w.fc1, input, wide, copied_in));

    const std::uint32_t splits = digits::splits_for(w.fc3.in);
    const float* weight = w.fc3.weight.get();
    const float* bias = w.fc3.bias.get();
    model.last =
        graph.kernel(w.linear_split.function(), w.linear_split.grid({batch, w.fc3.out, splits}), w.linear_split.block(),
                     {&hidden, &weight, &bias, &logits, &batch, &w.fc3.in, &w.fc3.out, &splits}, {encoded, cleared});
    model.answer = logits;
    return model;
  };
  return std::make_unique<RawRunner>(std::size_t{batch} * layers.front().in, std::size_t{batch} * layers.back().out,
                                     slots, record);
}

}  // namespace weft::bench
