#include "encoder/cases.h"

#include "encoder/elements.h"
#include <weft/error.h>
#include <weft/safetensors.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace weft::encoder {

namespace {

class Reader {
 public:
  Reader(const std::filesystem::path& path, const BertConfig& config)
      : file_(Safetensors::open(path)), config_(config) {}

  Cases read() {
    const Shape shape = file_.tensor("input_ids").desc.shape();
    if (shape.size() != 2 || shape[0] == 0 || shape[0] > kMostCases || shape[1] == 0 || shape[1] > config_.positions) {
      throw Error(ErrorCode::invalid,
                  fmt::format("input_ids is {}; it has two dimensions, with 1 to {} cases of 1 to {} tokens, as the "
                              "model has positions.",
                              to_string(file_.tensor("input_ids").desc), kMostCases, config_.positions));
    }
    cases_.count = static_cast<std::uint32_t>(shape[0]);
    cases_.sequence = static_cast<std::uint32_t>(shape[1]);
    cases_.hidden = config_.hidden;
    cases_.ids = integers("input_ids");
    require_words();
    read_lengths();
    cases_.embeddings = floats("embeddings", {cases_.count, cases_.hidden});
    if (std::ranges::count(file_.names(), "last_hidden_state") != 0)
      cases_.states = floats("last_hidden_state", {cases_.count, cases_.sequence, cases_.hidden});
    return std::move(cases_);
  }

 private:
  static constexpr std::uint32_t kMostCases = 1u << 16;

  HostTensor tensor(const std::string& name, DType dtype, const Shape& shape) const {
    HostTensor tensor = file_.tensor(name);
    const TensorDesc expected(dtype, shape);
    if (tensor.desc != expected) {
      throw Error(ErrorCode::invalid, fmt::format("{} is {}; the model and input_ids ask for {}.", name,
                                                  to_string(tensor.desc), to_string(expected)));
    }
    return tensor;
  }

  std::vector<std::int32_t> integers(const std::string& name) const {
    const HostTensor source = tensor(name, DType::i32, {cases_.count, cases_.sequence});
    std::vector<std::int32_t> values(source.desc.count());
    std::memcpy(values.data(), source.bytes.data(), source.bytes.size());
    return values;
  }

  std::vector<float> floats(const std::string& name, const Shape& shape) const {
    std::vector<float> values = to_floats(tensor(name, DType::f32, shape).bytes, DType::f32);
    require_finite(values, name);
    return values;
  }

  void require_words() const {
    const auto is_word = [&](std::int32_t id) { return id >= 0 && static_cast<std::uint32_t>(id) < config_.words; };
    const auto stranger = std::ranges::find_if_not(cases_.ids, is_word);
    if (stranger == cases_.ids.end()) return;
    const auto position = static_cast<std::size_t>(stranger - cases_.ids.begin());
    throw Error(ErrorCode::invalid,
                fmt::format("input_ids[{}, {}] is {}; the model has the words 0 to {}.", position / cases_.sequence,
                            position % cases_.sequence, *stranger, config_.words - 1));
  }

  void read_lengths() {
    const std::vector<std::int32_t> mask = integers("attention_mask");
    for (std::size_t row = 0; row < cases_.count; ++row) {
      const auto tokens = std::span(mask).subspan(row * cases_.sequence, cases_.sequence);
      const auto end = std::ranges::find_if(tokens, [](std::int32_t value) { return value != 1; });
      const auto stranger = std::find_if(end, tokens.end(), [](std::int32_t value) { return value != 0; });
      if (end == tokens.begin() || stranger != tokens.end()) {
        const auto at = stranger == tokens.end() ? end : stranger;
        throw Error(ErrorCode::invalid,
                    fmt::format("attention_mask[{}, {}] is {}; a mask is 1 for the first tokens, at least one, and 0 "
                                "for the rest.",
                                row, at - tokens.begin(), *at));
      }
      cases_.lengths.push_back(static_cast<std::int32_t>(end - tokens.begin()));
    }
  }

  Safetensors file_;
  const BertConfig& config_;
  Cases cases_;
};

}  // namespace

Cases read_cases(const std::filesystem::path& path, const BertConfig& config) {
  try {
    return Reader(path, config).read();
  } catch (Error& error) {
    error.add_context(fmt::format("reading the cases \"{}\"", path.string()));
    throw;
  }
}

}  // namespace weft::encoder
