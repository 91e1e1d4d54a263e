#pragma once

#include <weft/context.h>
#include <weft/model.h>
#include <weft/prepared.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

// The digits model: three fully connected layers of any widths, the first two with ReLU. The demo, the bench and
// inspect build it here.

namespace weft::digits {

/// What a model and its test set are called in their folder.
inline constexpr const char* kModelFile = "digits.safetensors";
inline constexpr const char* kTestFile = "digits_test.safetensors";

/// y = x w^T + b, w of shape [out, in].
struct Layer {
  std::string name;
  std::uint32_t in = 0;
  std::uint32_t out = 0;
  std::vector<float> weight;
  std::vector<float> bias;
};

using Layers = std::array<Layer, 3>;

/// Width of the images, of both hidden layers, and of the answers.
using Widths = std::array<std::uint32_t, 4>;

[[nodiscard]] Widths widths(const Layers& layers);
/// "64-128-64-10".
[[nodiscard]] std::string to_string(const Widths& widths);

/// The layers of a safetensors file: `fc1.weight`, `fc1.bias` and so on; their sizes are the file's. Errors: `io` and
/// `invalid`, naming file and tensor, also for sizes that do not fit each other and numbers that are not finite.
[[nodiscard]] Layers read_layers(const std::filesystem::path& file);

/// Layers for those who care about structure and time, not about answers. The same seed gives the same weights.
[[nodiscard]] Layers random_layers(const Widths& widths, std::uint32_t seed);

/// Blocks that share the columns of the last layer: enough to spread its long sums, each with columns to do.
[[nodiscard]] std::uint32_t splits_for(std::uint32_t in) noexcept;

/// The model on a device, for one batch size.
struct Model {
  Context context;
  ModelFragment encoder;  ///< images [batch, in] to hidden: fc1 and fc2 with ReLU.
  ModelFragment head;     ///< hidden to logits [batch, out]: fc3, split over a filled accumulator.
  TensorDesc images;
  std::uint64_t weight_bytes = 0;
};

/// Errors: `invalid` for batch 0; those of weft.
[[nodiscard]] Model build(const Context& context, const Layers& layers, std::uint32_t batch);

/// Slots that take images as input 0 and give logits as output 0: both fragments in one graph.
[[nodiscard]] PreparedModel prepare(const Model& model, const PrepareOptions& options);

}  // namespace weft::digits
