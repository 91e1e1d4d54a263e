#include "digits/digits.h"

#include "digits/tensor_file.h"
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/kernels.h>
#include <weft/session.h>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

namespace weft::digits {

namespace {

constexpr std::array kNames{"fc1", "fc2", "fc3"};

Layer read_layer(const TensorFile& file, const std::string& name) {
  TensorFile::Floats weight = file.floats(name + ".weight", 2);
  TensorFile::Floats bias = file.floats(name + ".bias", 1);
  if (bias.shape[0] != weight.shape[0]) {
    file.refuse(
        fmt::format("{}.bias has {} elements, and {}.weight has {} rows.", name, bias.shape[0], name, weight.shape[0]));
  }
  return {name, weight.shape[1], weight.shape[0], std::move(weight.values), std::move(bias.values)};
}

/// A layer's weights on the device.
struct Parameters {
  TypedRegion<float> weight;
  TypedRegion<float> bias;
};

Parameters upload(ModelSession& session, const Layer& layer) {
  const auto weight = [&](Shape shape, const std::vector<float>& values, const char* part) {
    return session.weight<float>(
        {TensorDesc(DType::f32, std::move(shape)), std::as_bytes(std::span(values)), layer.name + part});
  };
  return {weight({layer.out, layer.in}, layer.weight, ".weight"), weight({layer.out}, layer.bias, ".bias")};
}

}  // namespace

Widths widths(const Layers& layers) { return {layers[0].in, layers[0].out, layers[1].out, layers[2].out}; }

std::string to_string(const Widths& widths) { return fmt::format("{}", fmt::join(widths, "-")); }

Layers read_layers(const std::filesystem::path& path) {
  const TensorFile file(path);
  Layers layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i] = read_layer(file, kNames[i]);
    if (i > 0 && layers[i].in != layers[i - 1].out) {
      file.refuse(fmt::format("{}.weight has {} columns, and {} gives {} values.", layers[i].name, layers[i].in,
                              layers[i - 1].name, layers[i - 1].out));
    }
  }
  return layers;
}

Layers random_layers(const Widths& widths, std::uint32_t seed) {
  std::mt19937 generator(seed);
  Layers layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers[i];
    layer = {kNames[i], widths[i], widths[i + 1], {}, {}};
    layer.weight.resize(std::size_t{layer.in} * layer.out);
    layer.bias.resize(layer.out);
    const float limit = 1 / std::sqrt(static_cast<float>(layer.in));
    std::uniform_real_distribution<float> uniform(-limit, limit);
    std::ranges::generate(layer.weight, [&] { return uniform(generator); });
    std::ranges::generate(layer.bias, [&] { return uniform(generator); });
  }
  return layers;
}

std::uint32_t splits_for(std::uint32_t in) noexcept {
  constexpr std::uint32_t kColumns = 32;
  constexpr std::uint32_t kMost = 8;
  return std::clamp(in / kColumns, 1u, kMost);
}

Model build(const Context& context, const Layers& layers, std::uint32_t batch) {
  if (batch == 0) throw Error(ErrorCode::invalid, "The batch is 0; a request carries at least 1 image.");
  const auto& [fc1, fc2, fc3] = layers;
  ModelSession session(context.device());
  const auto linear_relu = session.load(kernels::linear_relu);
  const auto linear_split = session.load(kernels::linear_split);
  const Parameters p1 = upload(session, fc1);
  const Parameters p2 = upload(session, fc2);
  const Parameters p3 = upload(session, fc3);
  const auto images = session.allocate<float>({batch, fc1.in}, {.label = "images"});
  const auto wide = session.allocate<float>({batch, fc1.out}, {.label = "wide"});
  const auto hidden = session.allocate<float>({batch, fc2.out}, {.label = "hidden"});
  const auto logits = session.allocate<float>({batch, fc3.out}, {.label = "logits"});
  const ModelDefinition definition = std::move(session).freeze(context);

  ModelFragment encoder = definition.fragment(
      trusted,
      {.inputs = {images},
       .outputs = {hidden},
       .commands = {linear_relu(workload(batch, fc1.out), images, p1.weight, p1.bias, wide, batch, fc1.in, fc1.out)
                        .label("fc1"),
                    linear_relu(workload(batch, fc2.out), wide, p2.weight, p2.bias, hidden, batch, fc2.in, fc2.out)
                        .label("fc2")},
       .label = "encoder"});
  const std::uint32_t splits = splits_for(fc3.in);
  ModelFragment head =
      definition.fragment(trusted, {.inputs = {hidden},
                                    .outputs = {logits},
                                    .commands = {fill(logits, 0).label("clear logits"),
                                                 linear_split(workload(batch, fc3.out, splits), hidden, p3.weight,
                                                              p3.bias, logits, batch, fc3.in, fc3.out, splits)
                                                     .label("fc3")},
                                    .label = "head"});
  return {context, std::move(encoder), std::move(head), images.desc, definition.weight_bytes()};
}

PreparedModel prepare(const Model& model, const PrepareOptions& options) {
  const auto factory = [&](Context& context) {
    Graph graph(context, "digits");
    const DeviceTensor images = graph.tensor(model.images, {.label = "images"});
    const std::vector<DeviceTensor> hidden = model.encoder.record(graph, {images});
    const std::vector<DeviceTensor> logits = model.head.record(graph, hidden);
    return InferenceGraph{.graph = std::move(graph), .inputs = {images}, .outputs = logits};
  };
  return PreparedModel::prepare(model.context, factory, options);
}

}  // namespace weft::digits
