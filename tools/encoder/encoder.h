#pragma once

#include "encoder/bert.h"
#include "encoder/matmul.h"
#include <weft/context.h>
#include <weft/model.h>
#include <weft/session.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft::encoder {

/// The shape of a request: sequences, each padded to the same length.
struct Bucket {
  std::uint32_t batch = 0;
  std::uint32_t sequence = 0;

  [[nodiscard]] std::uint64_t tokens() const noexcept { return std::uint64_t{batch} * sequence; }
  friend bool operator==(Bucket, Bucket) = default;
};

/// "8x64".
[[nodiscard]] std::string to_string(Bucket bucket);

/// Where a request's tensors stand among its inputs and outputs.
inline constexpr std::size_t kIds = 0;         ///< i32 [batch, sequence]; all are words of the model.
inline constexpr std::size_t kLengths = 1;     ///< i32 [batch]: tokens of each sequence, the rest is padding.
inline constexpr std::size_t kEmbeddings = 0;  ///< f32 [batch, hidden]: masked mean, of Euclidean norm 1.
inline constexpr std::size_t kStates = 1;      ///< The encoder's type [batch, sequence, hidden]: the last hidden state.

/// What a request reads back.
enum class Results : std::uint8_t { embeddings, embeddings_and_states };

/// A BERT encoder on a device: weights and kernels once, and a fragment for each shape of requests. All tokens are of
/// type 0. Thread-safe once made.
class Encoder {
 public:
  /// Weights are rounded to `dtype`, which is f32, f16 or bf16. `largest` bounds the shapes: by its batch, and by its
  /// number of tokens. Errors: `invalid` for a bucket that `fragment` would refuse; those of weft.
  Encoder(const Context& context, const Bert& bert, DType dtype, Bucket largest);

  /// Errors: `invalid` for an empty bucket, a sequence beyond the model's positions, or one beyond the largest.
  [[nodiscard]] ModelFragment fragment(Bucket bucket, Results results = Results::embeddings_and_states) const;

  [[nodiscard]] const BertConfig& config() const noexcept { return config_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::uint64_t weight_bytes() const noexcept { return definition_.weight_bytes(); }

 private:
  struct NormWeights {
    TensorRegion gamma;
    TensorRegion beta;
  };
  struct LinearWeights {
    TensorRegion weight;
    TensorRegion bias;
  };
  struct LayerWeights {
    LinearWeights qkv;
    LinearWeights attention_output;
    NormWeights attention_norm;
    LinearWeights intermediate;
    LinearWeights output;
    NormWeights output_norm;
  };
  struct Weights {
    TensorRegion words;
    TensorRegion positions;
    TensorRegion token_types;
    TensorRegion zeros;  ///< The type of every token of the largest bucket.
    NormWeights embedding_norm;
    std::vector<LayerWeights> layers;
  };
  /// For the largest bucket; smaller ones use the beginning of each.
  struct Scratch {
    Region ids;
    Region lengths;
    Region hidden;     ///< What a layer takes and gives.
    Region attended;   ///< A layer's hidden state behind its attention.
    Region projected;  ///< Of a matmul to the hidden size, and of the embedding.
    Region qkv;
    Region context;  ///< Of the attention.
    Region wide;
    Region activated;
    Region embeddings;
  };
  struct Kernels {
    KernelId embedding;
    KernelId layer_norm;
    KernelId layer_norm_residual;
    KernelId attention;
    KernelId gelu;
    KernelId mean_pool;
  };
  class Uploader;
  class Recorder;

  Encoder(ModelSession session, const Context& context, const Bert& bert, DType dtype, Bucket largest);
  static Bucket require_shape(const BertConfig& config, Bucket bucket);
  void require_fits(Bucket bucket) const;
  [[nodiscard]] Scratch scratch_of(Bucket bucket) const;
  static Kernels load_kernels(ModelSession& session, DType dtype, std::uint32_t head_size);
  static Scratch allocate(ModelSession& session, const BertConfig& config, DType dtype, Bucket largest);

  BertConfig config_;
  DType dtype_;
  Bucket largest_;
  Kernels kernels_;
  Matmul matmul_;
  Weights weights_;
  Scratch scratch_;
  ModelDefinition definition_;
};

}  // namespace weft::encoder
