#include "serving/model.h"

#include <weft/kernels.h>
#include <weft/weft.h>

#include <utility>

namespace weft::serving {

std::vector<Bucket> prepare_buckets(const Context& context, const Safetensors& file,
                                    const std::vector<std::uint32_t>& batches, const PrepareOptions& options) {
  ModelSession session(context.device());
  const auto linear = session.load(kernels::linear);
  const auto linear_relu = session.load(kernels::linear_relu);
  const auto weight = [&](const char* name) { return session.weight<float>(file.tensor(name)); };
  const auto w1 = weight("fc1.weight"), b1 = weight("fc1.bias");
  const auto w2 = weight("fc2.weight"), b2 = weight("fc2.bias");
  const auto w3 = weight("fc3.weight"), b3 = weight("fc3.bias");
  const auto width = [](const TensorRegion& w, std::size_t axis) {
    return static_cast<std::uint32_t>(w.desc.shape()[axis]);
  };
  const std::uint32_t pixels = width(w1, 1), wide = width(w1, 0), hidden = width(w2, 0), classes = width(w3, 0);

  // One set of commands a batch size. Scratch costs nothing until a slot uses it.
  std::vector<FragmentOptions> fragments;
  for (const std::uint32_t batch : batches) {
    const auto x = session.allocate<float>({batch, pixels}, {.label = "images"});
    const auto h1 = session.allocate<float>({batch, wide}, {.label = "wide"});
    const auto h2 = session.allocate<float>({batch, hidden}, {.label = "hidden"});
    const auto y = session.allocate<float>({batch, classes}, {.label = "logits"});
    fragments.push_back({.inputs = {x},
                         .outputs = {y},
                         .commands = {linear_relu(workload(batch, wide), x, w1, b1, h1, batch, pixels, wide),
                                      linear_relu(workload(batch, hidden), h1, w2, b2, h2, batch, wide, hidden),
                                      linear(workload(batch, classes), h2, w3, b3, y, batch, hidden, classes)},
                         .label = "digits"});
  }
  const ModelDefinition model = std::move(session).freeze(context);  // Weights are immutable from here on.

  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < batches.size(); ++i)
    buckets.push_back({batches[i], model.prepare(trusted, std::move(fragments[i]), options)});
  return buckets;
}

}  // namespace weft::serving
