#include "encoder/encoder.h"

#include "encoder/elements.h"
#include <weft/error.h>
#include <weft/kernels.h>

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

namespace weft::encoder {

/// Puts weights into a session, rounded to its type.
class Encoder::Uploader {
 public:
  Uploader(ModelSession& session, const BertConfig& config, DType dtype)
      : session_(session), config_(config), dtype_(dtype) {}

  Weights weights(const Bert& bert, std::uint64_t tokens) const {
    Weights weights{.words = tensor(bert.words, {config_.words, config_.hidden}, "words"),
                    .positions = tensor(bert.positions, {config_.positions, config_.hidden}, "positions"),
                    .token_types = tensor(bert.token_types, {config_.token_types, config_.hidden}, "token types"),
                    .zeros = zeros(tokens),
                    .embedding_norm = norm(bert.embedding_norm, "embedding"),
                    .layers = {}};
    for (const BertLayer& one : bert.layers)
      weights.layers.push_back(layer(one, fmt::format("layer {} ", weights.layers.size())));
    return weights;
  }

 private:
  TensorRegion tensor(std::span<const float> values, Shape shape, std::string label) const {
    const std::vector<std::byte> bytes = to_bytes(values, dtype_);
    require_finite(to_floats(bytes, dtype_), fmt::format("the {} in {}", label, to_string(dtype_)));
    return session_.weight({TensorDesc(dtype_, std::move(shape)), bytes, std::move(label)});
  }

  TensorRegion zeros(std::uint64_t tokens) const {
    const std::vector<std::int32_t> values(tokens, 0);
    return session_.weight({TensorDesc(DType::i32, {tokens}), std::as_bytes(std::span(values)), "type of each token"});
  }

  NormWeights norm(const LayerNorm& norm, const std::string& label) const {
    return {tensor(norm.gamma, {config_.hidden}, label + " gamma"),
            tensor(norm.beta, {config_.hidden}, label + " beta")};
  }

  LinearWeights linear(const Linear& linear, std::uint32_t in, std::uint32_t out, const std::string& label) const {
    return {tensor(linear.weight, {out, in}, label + " weight"), tensor(linear.bias, {out}, label + " bias")};
  }

  LayerWeights layer(const BertLayer& layer, const std::string& label) const {
    const std::uint32_t hidden = config_.hidden;
    return {.qkv = linear(layer.qkv, hidden, 3 * hidden, label + "qkv"),
            .attention_output = linear(layer.attention_output, hidden, hidden, label + "attention output"),
            .attention_norm = norm(layer.attention_norm, label + "attention norm"),
            .intermediate = linear(layer.intermediate, hidden, config_.intermediate, label + "intermediate"),
            .output = linear(layer.output, config_.intermediate, hidden, label + "output"),
            .output_norm = norm(layer.output_norm, label + "output norm")};
  }

  ModelSession& session_;
  const BertConfig& config_;
  DType dtype_;
};

/// Writes down the commands of one bucket.
class Encoder::Recorder {
 public:
  Recorder(const Encoder& encoder, const Scratch& scratch, Bucket bucket)
      : encoder_(encoder),
        config_(encoder.config_),
        kernels_(encoder.kernels_),
        scratch_(scratch),
        bucket_(bucket),
        rows_(static_cast<std::uint32_t>(bucket.tokens())) {}

  std::vector<Command> commands() && {
    embed(encoder_.weights_);
    for (std::size_t i = 0; i < encoder_.weights_.layers.size(); ++i) {
      prefix_ = fmt::format("layer {} ", i);
      attend(encoder_.weights_.layers[i]);
      feed_forward(encoder_.weights_.layers[i]);
    }
    prefix_.clear();
    add("mean pool", dispatch(kernels_.mean_pool, workload(bucket_.batch),
                              {scratch_.hidden, scratch_.lengths, scratch_.embeddings, bucket_.batch, bucket_.sequence,
                               config_.hidden}));
    return std::move(commands_);
  }

 private:
  void add(const char* label, Command command) { commands_.push_back(std::move(command.label(prefix_ + label))); }

  void matmul(const char* label, std::uint32_t in, std::uint32_t out, const Region& x, const Region& weight,
              const Region& y) {
    add(label, encoder_.matmul_({.rows = rows_, .in = in, .out = out}, x, weight, y));
  }

  void embed(const Weights& weights) {
    add("embedding", dispatch(kernels_.embedding, workload(bucket_.batch, bucket_.sequence),
                              {scratch_.ids, weights.zeros, weights.words, weights.positions, weights.token_types,
                               scratch_.projected, bucket_.batch, bucket_.sequence, config_.hidden, config_.words,
                               config_.positions, config_.token_types}));
    add("embedding norm", dispatch(kernels_.layer_norm, workload(rows_),
                                   {scratch_.projected, weights.embedding_norm.gamma, weights.embedding_norm.beta,
                                    scratch_.hidden, rows_, config_.hidden, config_.layer_norm_eps}));
  }

  /// y = layer norm of the projection, its bias and the residual.
  void norm(const char* label, const Region& bias, const Region& residual, const NormWeights& weights,
            const Region& y) {
    add(label, dispatch(kernels_.layer_norm_residual, workload(rows_),
                        {scratch_.projected, bias, residual, weights.gamma, weights.beta, y, rows_, config_.hidden,
                         config_.layer_norm_eps}));
  }

  void attend(const LayerWeights& weights) {
    const std::uint32_t hidden = config_.hidden;
    const float scale = 1 / std::sqrt(static_cast<float>(config_.head_size()));
    matmul("qkv", hidden, 3 * hidden, scratch_.hidden, weights.qkv.weight, scratch_.qkv);
    add("attention",
        dispatch(kernels_.attention, workload(bucket_.batch, bucket_.sequence, config_.heads, config_.head_size()),
                 {scratch_.qkv, weights.qkv.bias, scratch_.lengths, scratch_.context, bucket_.batch, bucket_.sequence,
                  config_.heads, config_.head_size(), scale}));
    matmul("attention output", hidden, hidden, scratch_.context, weights.attention_output.weight, scratch_.projected);
    norm("attention norm", weights.attention_output.bias, scratch_.hidden, weights.attention_norm, scratch_.attended);
  }

  void feed_forward(const LayerWeights& weights) {
    const std::uint32_t wide = config_.intermediate;
    if (encoder_.matmul_.has_gelu(rows_)) {
      add("intermediate, gelu",
          encoder_.matmul_.gelu({.rows = rows_, .in = config_.hidden, .out = wide}, scratch_.attended,
                                weights.intermediate.weight, weights.intermediate.bias, scratch_.activated));
    } else {
      matmul("intermediate", config_.hidden, wide, scratch_.attended, weights.intermediate.weight, scratch_.wide);
      add("gelu", dispatch(kernels_.gelu, workload(rows_, wide),
                           {scratch_.wide, weights.intermediate.bias, scratch_.activated, rows_, wide}));
    }
    matmul("output", wide, config_.hidden, scratch_.activated, weights.output.weight, scratch_.projected);
    norm("output norm", weights.output.bias, scratch_.attended, weights.output_norm, scratch_.hidden);
  }

  const Encoder& encoder_;
  const BertConfig& config_;
  const Kernels& kernels_;
  const Scratch& scratch_;
  Bucket bucket_;
  std::uint32_t rows_;
  std::string prefix_;
  std::vector<Command> commands_;
};

std::string to_string(Bucket bucket) { return fmt::format("{}x{}", bucket.batch, bucket.sequence); }

Encoder::Encoder(const Context& context, const Bert& bert, DType dtype, Bucket largest)
    : Encoder(ModelSession(context.device()), context, bert, dtype, largest) {}

// A member takes what it needs of the session in the order in which they are declared; the definition ends it.
Encoder::Encoder(ModelSession session, const Context& context, const Bert& bert, DType dtype, Bucket largest)
    : config_(bert.config),
      dtype_(dtype),
      largest_(require_shape(config_, largest)),
      kernels_(load_kernels(session, dtype, config_.head_size())),
      matmul_(session, dtype),
      weights_(Uploader(session, config_, dtype).weights(bert, largest.tokens())),
      scratch_(allocate(session, config_, dtype, largest)),
      definition_(std::move(session).freeze(context)) {}

Bucket Encoder::require_shape(const BertConfig& config, Bucket bucket) {
  if (bucket.batch == 0 || bucket.sequence == 0) {
    throw Error(ErrorCode::invalid,
                fmt::format("The bucket {} is empty; it has at least one token.", to_string(bucket)));
  }
  if (bucket.sequence > config.positions) {
    throw Error(ErrorCode::invalid, fmt::format("The bucket {} has sequences of {} tokens; the model has {} positions.",
                                                to_string(bucket), bucket.sequence, config.positions));
  }
  if (bucket.tokens() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::invalid, fmt::format("The bucket {} has {} tokens; the kernels count them in 32 bits.",
                                                to_string(bucket), bucket.tokens()));
  }
  return bucket;
}

void Encoder::require_fits(Bucket bucket) const {
  require_shape(config_, bucket);
  if (bucket.batch > largest_.batch || bucket.tokens() > largest_.tokens()) {
    throw Error(ErrorCode::invalid,
                fmt::format("The bucket {} has more sequences or tokens than the largest that the encoder was built "
                            "for, {}.",
                            to_string(bucket), to_string(largest_)));
  }
}

Encoder::Kernels Encoder::load_kernels(ModelSession& session, DType dtype, std::uint32_t head_size) {
  return {.embedding = session.load(kernels::embedding_spec(dtype)),
          .layer_norm = session.load(kernels::layer_norm_spec(dtype)),
          .layer_norm_residual = session.load(kernels::layer_norm_residual_spec(dtype)),
          .attention = session.load(kernels::attention_spec(dtype, head_size)),
          .gelu = session.load(kernels::gelu_spec(dtype)),
          .mean_pool = session.load(kernels::mean_pool_spec(dtype))};
}

Encoder::Scratch Encoder::allocate(ModelSession& session, const BertConfig& config, DType dtype, Bucket largest) {
  const auto scratch = [&](DType type, std::uint64_t rows, std::uint64_t columns, const char* label) -> Region {
    return session.allocate(TensorDesc(type, {rows, columns}), {.label = label});
  };
  const std::uint64_t tokens = largest.tokens();
  return {.ids = scratch(DType::i32, tokens, 1, "ids"),
          .lengths = scratch(DType::i32, largest.batch, 1, "lengths"),
          .hidden = scratch(dtype, tokens, config.hidden, "hidden"),
          .attended = scratch(dtype, tokens, config.hidden, "attended"),
          .projected = scratch(dtype, tokens, config.hidden, "projected"),
          .qkv = scratch(dtype, tokens, 3 * std::uint64_t{config.hidden}, "qkv"),
          .context = scratch(dtype, tokens, config.hidden, "context"),
          .wide = scratch(dtype, tokens, config.intermediate, "wide"),
          .activated = scratch(dtype, tokens, config.intermediate, "activated"),
          .embeddings = scratch(DType::f32, largest.batch, config.hidden, "embeddings")};
}

Encoder::Scratch Encoder::scratch_of(Bucket bucket) const {
  const auto part = [](const Region& region, std::uint64_t count, std::uint64_t all) {
    return region.slice(0, region.bytes / all * count);
  };
  const auto tokens = [&](const Region& region) { return part(region, bucket.tokens(), largest_.tokens()); };
  const auto sequences = [&](const Region& region) { return part(region, bucket.batch, largest_.batch); };
  return {.ids = tokens(scratch_.ids),
          .lengths = sequences(scratch_.lengths),
          .hidden = tokens(scratch_.hidden),
          .attended = tokens(scratch_.attended),
          .projected = tokens(scratch_.projected),
          .qkv = tokens(scratch_.qkv),
          .context = tokens(scratch_.context),
          .wide = tokens(scratch_.wide),
          .activated = tokens(scratch_.activated),
          .embeddings = sequences(scratch_.embeddings)};
}

ModelFragment Encoder::fragment(Bucket bucket, Results results) const {
  require_fits(bucket);
  const Scratch scratch = scratch_of(bucket);
  const auto tensor = [](const Region& region, DType dtype, Shape shape) {
    return TensorRegion(region, TensorDesc(dtype, std::move(shape)));
  };
  std::vector<TensorRegion> outputs{tensor(scratch.embeddings, DType::f32, {bucket.batch, config_.hidden})};
  if (results == Results::embeddings_and_states)
    outputs.push_back(tensor(scratch.hidden, dtype_, {bucket.batch, bucket.sequence, config_.hidden}));
  return definition_.fragment(trusted, {.inputs = {tensor(scratch.ids, DType::i32, {bucket.batch, bucket.sequence}),
                                                   tensor(scratch.lengths, DType::i32, {bucket.batch})},
                                        .outputs = std::move(outputs),
                                        .commands = Recorder(*this, scratch, bucket).commands(),
                                        .label = "encoder " + to_string(bucket)});
}

}  // namespace weft::encoder
