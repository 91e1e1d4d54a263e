#include "encoder/bert_config.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft::encoder {

namespace {

// So that sizes of a row of three heads' projections stay far from the end of 32 bits.
constexpr std::uint32_t kLargestSize = 1u << 24;
constexpr std::uint32_t kLargestHead = 128;

template <class T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return value;
}

const std::string& required(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  if (found == settings.end()) {
    throw Error(
        ErrorCode::invalid,
        fmt::format("There is no setting {}; a BERT states it in the metadata of its file, or in the config.json "
                    "of its folder.",
                    name));
  }
  return found->second;
}

std::uint32_t size(const Settings& settings, const std::string& name) {
  const std::string& text = required(settings, name);
  const std::optional<std::uint32_t> value = parse<std::uint32_t>(text);
  if (!value || *value == 0 || *value > kLargestSize) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} is {}; it is a whole number from 1 to {}.", name, text, kLargestSize));
  }
  return *value;
}

std::uint32_t size_or(const Settings& settings, const std::string& name, std::uint32_t value) {
  return settings.contains(name) ? size(settings, name) : value;
}

float positive_or(const Settings& settings, const std::string& name, float value) {
  const auto found = settings.find(name);
  if (found == settings.end()) return value;
  const std::optional<float> given = parse<float>(found->second);
  if (!given || !(*given > 0) || !std::isfinite(*given))
    throw Error(ErrorCode::invalid, fmt::format("{} is {}; it is a finite number above 0.", name, found->second));
  return *given;
}

/// A setting that may be left out has one of these values.
void require_one_of(const Settings& settings, const std::string& name, const std::vector<std::string_view>& supported) {
  const auto found = settings.find(name);
  if (found == settings.end() || std::ranges::find(supported, found->second) != supported.end()) return;
  throw Error(ErrorCode::unsupported, fmt::format("{} is \"{}\"; the encoder computes \"{}\" alone.", name,
                                                  found->second, fmt::join(supported, "\" and \"")));
}

}  // namespace

BertConfig read_config(const Settings& settings) {
  require_one_of(settings, "model_type", {"bert"});
  require_one_of(settings, "architecture", {"bert"});
  require_one_of(settings, "hidden_act", {"gelu", "gelu (erf)"});
  require_one_of(settings, "position_embedding_type", {"absolute"});
  require_one_of(settings, "is_decoder", {"false"});
  const BertConfig config{.hidden = size(settings, "hidden_size"),
                          .layers = size(settings, "num_hidden_layers"),
                          .heads = size(settings, "num_attention_heads"),
                          .intermediate = size(settings, "intermediate_size"),
                          .words = size(settings, "vocab_size"),
                          .positions = size(settings, "max_position_embeddings"),
                          .token_types = size_or(settings, "type_vocab_size", 2),
                          .layer_norm_eps = positive_or(settings, "layer_norm_eps", 1e-12f)};
  if (config.hidden % config.heads != 0) {
    throw Error(ErrorCode::invalid, fmt::format("hidden_size is {}, which is no multiple of num_attention_heads, {}.",
                                                config.hidden, config.heads));
  }
  if (config.head_size() > kLargestHead) {
    throw Error(ErrorCode::unsupported,
                fmt::format("A head has {} elements (hidden_size {} / num_attention_heads {}); the attention kernels "
                            "take at most {}.",
                            config.head_size(), config.hidden, config.heads, kLargestHead));
  }
  return config;
}

}  // namespace weft::encoder
