#include "encoder/encoder.h"

#include "catch.h"
#include "encoder/bert_file.h"
#include "encoder/check.h"
#include "encoder/elements.h"
#include "support/device.h"
#include "tools/encoder_folder.h"
#include "tools/encoder_reference.h"
#include "tools/program.h"
#include <weft/context.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace weft::test;
using namespace weft::encoder;
using weft::DType;
using weft::ErrorCode;

const std::string kData = WEFT_TEST_DATA;
const std::string kModel = kData + "/tiny_bert.safetensors";
const std::string kCases = kData + "/tiny_bert_cases.safetensors";

ProgramResult run_encoder(const std::string& model, const std::string& cases, const std::string& dtype = "f32") {
  return run_program("weft-encoder",
                     {"--model", model, "--cases", cases, "--dtype", dtype, "--device", device_argument()});
}

/// The two errors of the last line as it is promised; infinite where it is another.
std::array<double, 2> last_errors(const ProgramResult& result) {
  std::smatch match;
  const std::string line = result.last_line();
  if (!std::regex_match(line, match, std::regex(R"(max relative error hidden (\S+) embeddings (\S+) device \S.*)"))) {
    return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  }
  return {std::stod(match[1]), std::stod(match[2])};
}

/// The lengths of the lines that report a case.
std::vector<int> reported_lengths(const std::string& output) {
  std::vector<int> lengths;
  std::istringstream lines(output);
  const std::regex report(R"( +\d+ +(\d+)( +\S+){5})");
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, report)) lengths.push_back(std::stoi(match[1]));
  }
  return lengths;
}

void require_refusal(const ProgramResult& result, const std::string& sentence) {
  INFO(result.output << result.errors);
  REQUIRE(result.status == 2);
  REQUIRE(result.errors.starts_with("weft-encoder: "));
  REQUIRE(contains(result.errors, sentence));
  REQUIRE_FALSE(contains(result.output, "max relative error"));
}

bool equal(const Linear& a, const Linear& b) { return a.weight == b.weight && a.bias == b.bias; }
bool equal(const LayerNorm& a, const LayerNorm& b) { return a.gamma == b.gamma && a.beta == b.beta; }
bool equal(const BertLayer& a, const BertLayer& b) {
  return equal(a.qkv, b.qkv) && equal(a.attention_output, b.attention_output) &&
         equal(a.attention_norm, b.attention_norm) && equal(a.intermediate, b.intermediate) &&
         equal(a.output, b.output) && equal(a.output_norm, b.output_norm);
}
bool equal(const Bert& a, const Bert& b) {
  return a.words == b.words && a.positions == b.positions && a.token_types == b.token_types &&
         equal(a.embedding_norm, b.embedding_norm) &&
         std::ranges::equal(a.layers, b.layers, [](const auto& x, const auto& y) { return equal(x, y); });
}

}  // namespace

TEST_CASE("The encoder keeps its bounds on a BERT of its authors' code", "[tools][encoder]") {
  const std::string dtype = GENERATE("f32", "f16", "bf16");
  const ProgramResult result = run_encoder(kModel, kCases, dtype);
  INFO(result.output << result.errors);
  REQUIRE(result.status == 0);
  const auto [states, embeddings] = last_errors(result);
  CHECK(states <= (dtype == "f32" ? 1e-5 : 1e-2));
  CHECK(embeddings <= (dtype == "f32" ? 1e-5 : 1e-2));
  CHECK(states > 0);
  CHECK(reported_lengths(result.output) == std::vector<int>{64, 29, 28, 19, 12, 2, 3, 1});
}

TEST_CASE("The encoder keeps its bounds on sizes that are no powers of two", "[tools][encoder]") {
  const BertConfig config{.hidden = 96,
                          .layers = 2,
                          .heads = 6,
                          .intermediate = 200,
                          .words = 77,
                          .positions = 33,
                          .token_types = 2,
                          .layer_norm_eps = 1e-12f};
  const Bert bert = random_bert(config, 1);
  // More rows than the kernels for few rows are chosen for, and by themselves fewer.
  const Cases cases = reference_cases(bert, 33, {33, 1, 17, 32, 2, 16, 5, 31, 33, 8}, 2);
  const weft::Context context = weft::Context::open(test_device());
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Encoder encoder(context, bert, dtype, largest_bucket(cases, config.positions));
    const std::vector<CaseReport> reports = check(encoder, cases);
    REQUIRE(reports.size() == cases.count);
    for (std::size_t i = 0; i < reports.size(); ++i) {
      INFO(to_string(dtype) << ", case " << i << " of length " << cases.lengths[i]);
      CHECK(reports[i].length == static_cast<std::uint32_t>(cases.lengths[i]));
      CHECK(reports[i].bucket == Bucket{1, reports[i].length <= 16 ? 16u : reports[i].length <= 32 ? 32u : 33u});
      for (const Errors& errors : {reports[i].batched, reports[i].alone}) {
        CHECK(errors.states <= error_bound(dtype));
        CHECK(errors.embeddings <= error_bound(dtype));
      }
    }
  }
}

TEST_CASE("An encoder takes any bucket up to its largest", "[tools][encoder]") {
  const EncoderFolder folder;
  const weft::Context context = weft::Context::open(test_device());
  const Encoder encoder(context, folder.bert(), DType::f32, {2, 4});
  CHECK_NOTHROW(encoder.fragment({2, 4}));
  CHECK_NOTHROW(encoder.fragment({1, 7}));
  const auto refused = [&](Bucket bucket) {
    const weft::Error error = refusal([&] { static_cast<void>(encoder.fragment(bucket)); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(refused({0, 4}) == "The bucket 0x4 is empty; it has at least one token.");
  CHECK(refused({1, 8}) == "The bucket 1x8 has sequences of 8 tokens; the model has 7 positions.");
  CHECK(contains(refused({2, 5}), "The bucket 2x5 has more sequences or tokens than the largest"));
  CHECK(contains(refused({3, 1}), "The bucket 3x1 has more sequences or tokens than the largest"));
}

TEST_CASE("A smaller bucket takes less memory", "[tools][encoder]") {
  const EncoderFolder folder;
  const weft::Context context = weft::Context::open(test_device());
  const Encoder encoder(context, folder.bert(), DType::f16, {32, 7});  // No product of so few rows has a workspace.
  const std::uint64_t small = encoder.fragment({1, 7}).prepare({.slots = 1}).topology().requested_bytes;
  const std::uint64_t large = encoder.fragment({32, 7}).prepare({.slots = 1}).topology().requested_bytes;
  CHECK(small * 30 < large);
}

TEST_CASE("A model is read the same from each of its forms", "[tools][encoder]") {
  EncoderFolder folder;
  SECTION("a file with its sizes") { CHECK(equal(read_bert(folder.write_model_file()), folder.bert())); }
  SECTION("a folder with one file") { CHECK(equal(read_bert(folder.write_model_folder()), folder.bert())); }
  SECTION("a folder with shards") { CHECK(equal(read_bert(folder.write_shards()), folder.bert())); }
  SECTION("names with a prefix, beside those of a head") {
    for (FileTensor& tensor : folder.model) tensor.name = "bert." + tensor.name;
    folder.model.push_back(file_tensor("cls.predictions.bias", {11}, std::vector<float>(11)));
    CHECK(equal(read_bert(folder.write_model_file()), folder.bert()));
  }
  SECTION("the older names of LayerNorm") {
    for (FileTensor& tensor : folder.model) {
      tensor.name = std::regex_replace(tensor.name, std::regex("LayerNorm.weight"), "LayerNorm.gamma");
      tensor.name = std::regex_replace(tensor.name, std::regex("LayerNorm.bias"), "LayerNorm.beta");
    }
    CHECK(equal(read_bert(folder.write_model_file()), folder.bert()));
  }
}

TEST_CASE("Weights of 2 bytes are read as their values", "[tools][encoder]") {
  EncoderFolder folder;
  const DType dtype = GENERATE(DType::f16, DType::bf16);
  FileTensor& words = find_tensor(folder.model, "embeddings.word_embeddings.weight");
  words.dtype = dtype == DType::f16 ? "F16" : "BF16";
  words.bytes = to_bytes(folder.bert().words, dtype);
  CHECK(read_bert(folder.write_model_file()).words == to_floats(words.bytes, dtype));
}

TEST_CASE("The encoder runs a model from a folder", "[tools][encoder]") {
  EncoderFolder folder;
  const ProgramResult result = run_encoder(folder.write_shards(), folder.write_cases());
  INFO(result.output << result.errors);
  CHECK(result.status == 0);
  CHECK(reported_lengths(result.output) == std::vector<int>{5, 1, 3});
}

TEST_CASE("Answers that are too far off are told and fail the program", "[tools][encoder]") {
  EncoderFolder folder;
  const std::string spoiled = GENERATE("last_hidden_state", "embeddings");
  FileTensor& answers = find_tensor(folder.cases, spoiled);
  std::vector<float> values = to_floats(answers.bytes, DType::f32);
  values.front() += 0.1f;
  answers.bytes = to_bytes(values, DType::f32);
  const ProgramResult result = run_encoder(folder.write_model_file(), folder.write_cases());
  INFO(result.output << result.errors);
  CHECK(result.status == 1);
  CHECK(contains(result.errors, "The answers are off by more than 1e-05 relative, which f32 must keep."));
  const auto [states, embeddings] = last_errors(result);
  CHECK((states > 1e-5) == (spoiled == "last_hidden_state"));
  CHECK((embeddings > 1e-5) == (spoiled == "embeddings"));
}

TEST_CASE("A model that the encoder does not compute is refused with its setting", "[tools][encoder]") {
  EncoderFolder folder;
  const auto refused = [&](const std::string& name, const std::string& value) {
    folder.settings[name] = value;
    const weft::Error error = refusal([&] { static_cast<void>(read_bert(folder.write_model_folder())); });
    CHECK(contains(error.what(), "While reading the model \"" + folder.path().string() + "\": "));
    return std::pair(error.code(), error.sentence());
  };
  SECTION("another activation") {
    CHECK(refused("hidden_act", "relu") ==
          std::pair(ErrorCode::unsupported,
                    std::string("hidden_act is \"relu\"; the encoder computes \"gelu\" and \"gelu (erf)\" alone.")));
  }
  SECTION("relative positions") {
    CHECK(refused("position_embedding_type", "relative_key") ==
          std::pair(ErrorCode::unsupported, std::string("position_embedding_type is \"relative_key\"; the encoder "
                                                        "computes \"absolute\" alone.")));
  }
  SECTION("another architecture") {
    CHECK(refused("model_type", "gpt2") ==
          std::pair(ErrorCode::unsupported, std::string("model_type is \"gpt2\"; the encoder computes \"bert\" "
                                                        "alone.")));
  }
  SECTION("a decoder") {
    CHECK(refused("is_decoder", "true") ==
          std::pair(ErrorCode::unsupported, std::string("is_decoder is \"true\"; the encoder computes \"false\" "
                                                        "alone.")));
  }
  SECTION("heads beyond the kernels") {
    folder.settings["hidden_size"] = "258";
    CHECK(
        refused("num_attention_heads", "2") ==
        std::pair(ErrorCode::unsupported, std::string("A head has 129 elements (hidden_size 258 / num_attention_heads "
                                                      "2); the attention kernels take at most 128.")));
  }
  SECTION("heads that do not divide the hidden size") {
    CHECK(refused("num_attention_heads", "3") ==
          std::pair(ErrorCode::invalid,
                    std::string("hidden_size is 8, which is no multiple of num_attention_heads, 3.")));
  }
  SECTION("a size that is none") {
    CHECK(refused("vocab_size", "0") ==
          std::pair(ErrorCode::invalid, std::string("vocab_size is 0; it is a whole number from 1 to 16777216.")));
    CHECK(refused("vocab_size", "eleven") ==
          std::pair(ErrorCode::invalid, std::string("vocab_size is eleven; it is a whole number from 1 to 16777216.")));
  }
  SECTION("an epsilon that is none") {
    CHECK(refused("layer_norm_eps", "0") ==
          std::pair(ErrorCode::invalid, std::string("layer_norm_eps is 0; it is a finite number above 0.")));
  }
}

TEST_CASE("A model whose tensors do not fit its sizes is refused with the tensor", "[tools][encoder]") {
  EncoderFolder folder;
  const auto refused = [&] {
    const weft::Error error = refusal([&] { static_cast<void>(read_bert(folder.write_model_file())); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  FileTensor& key = find_tensor(folder.model, "encoder.layer.1.attention.self.key.weight");
  SECTION("a missing tensor") {
    key.name = "elsewhere";
    CHECK(refused() == "There is no tensor encoder.layer.1.attention.self.key.weight.");
  }
  SECTION("another shape") {
    key.shape = {4, 16};
    CHECK(
        refused() ==
        "encoder.layer.1.attention.self.key.weight is f32[4,16]; the settings ask for f32[8,8], or the same in f16 or "
        "bf16.");
  }
  SECTION("another type") {
    key.dtype = "I32";
    CHECK(refused() ==
          "encoder.layer.1.attention.self.key.weight is i32[8,8]; the settings ask for f32[8,8], or the same in f16 or "
          "bf16.");
  }
  SECTION("a layer too few") {
    folder.settings["num_hidden_layers"] = "3";
    CHECK(refused() == "There is no tensor encoder.layer.2.attention.self.query.weight.");
  }
  SECTION("a number that is none") {
    std::vector<float> values(64);
    values[5] = std::numeric_limits<float>::quiet_NaN();
    key.bytes = to_bytes(values, DType::f32);
    CHECK(refused() == "Element 5 of encoder.layer.1.attention.self.key.weight is nan; all are finite.");
  }
  SECTION("no sizes") {
    folder.settings = {{"format", "pt"}};
    CHECK(refused() ==
          "There is no setting hidden_size; a BERT states it in the metadata of its file, or in the config.json of its "
          "folder.");
  }
}

TEST_CASE("A folder that is no model is refused", "[tools][encoder]") {
  const EncoderFolder folder;
  const auto refused = [&] { return refusal([&] { static_cast<void>(read_bert(folder.path())); }); };
  SECTION("nothing in it") {
    CHECK(refused().code() == ErrorCode::io);
    CHECK(contains(refused().sentence(), "config.json\" cannot be opened."));
  }
  SECTION("a configuration that is no JSON") {
    write_text(folder.path() / "config.json", "hidden_size = 8");
    CHECK(refused().code() == ErrorCode::io);
    CHECK(contains(refused().sentence(), "config.json\" is no JSON object."));
  }
  SECTION("an index without a map") {
    folder.write_config();
    write_text(folder.path() / "model.safetensors.index.json", "{}");
    CHECK(refused().code() == ErrorCode::io);
    CHECK(contains(refused().sentence(), "has no object \"weight_map\"."));
  }
  SECTION("an index that leaves the folder") {
    folder.write_config();
    write_text(folder.path() / "model.safetensors.index.json", R"({"weight_map": {"a": "../model.safetensors"}})");
    CHECK(refused().code() == ErrorCode::invalid);
    CHECK(contains(refused().sentence(), "has \"../model.safetensors\" for a; it names a file of the same folder."));
  }
}

TEST_CASE("Cases that do not fit the model are refused", "[tools][encoder]") {
  EncoderFolder folder;
  const auto replace = [&](const std::string& name, std::vector<std::int32_t> values) {
    FileTensor& tensor = find_tensor(folder.cases, name);
    tensor = file_tensor(name, tensor.shape, values);
  };
  const auto refuse = [&](const std::string& sentence) {
    require_refusal(run_encoder(folder.write_model_file(), folder.write_cases()), sentence);
  };
  SECTION("a mask with a gap") {
    replace("attention_mask", {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0});
    refuse("attention_mask[2, 2] is 1; a mask is 1 for the first tokens, at least one, and 0 for the rest.");
  }
  SECTION("a mask without tokens") {
    replace("attention_mask", {1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0});
    refuse("attention_mask[1, 0] is 0; a mask is 1 for the first tokens, at least one, and 0 for the rest.");
  }
  SECTION("a word that the model does not have") {
    replace("input_ids", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0});
    refuse("input_ids[2, 1] is 11; the model has the words 0 to 10.");
  }
  SECTION("longer sequences than positions") {
    find_tensor(folder.cases, "input_ids") = file_tensor("input_ids", {1, 8}, std::vector<std::int32_t>(8));
    refuse("input_ids is i32[1,8]; it has two dimensions, with 1 to 65536 cases of 1 to 7 tokens");
  }
  SECTION("another hidden size") {
    find_tensor(folder.cases, "embeddings") = file_tensor("embeddings", {3, 9}, std::vector<float>(27));
    refuse("embeddings is f32[3,9]; the model and input_ids ask for f32[3,8].");
  }
  SECTION("no hidden states to compare") {
    folder.cases.erase(folder.cases.begin() + 2);
    refuse("have no tensor last_hidden_state to compare with.");
  }
}

TEST_CASE("The bench measures an encoder on cases of a file", "[tools][encoder][bench]") {
  const auto measure = [](const EncoderFolder& folder) {
    return run_program("weft-bench", {"encoder", "--device", device_argument(), "--model", folder.write_model_file(),
                                      "--cases", folder.write_cases(), "--dtype", "f32", "--slots", "2",
                                      "--repetitions", "2", "--requests", "5"});
  };
  SECTION("right answers are timed") {
    const ProgramResult result = measure(EncoderFolder({4, 4, 4}));
    INFO(result.output << result.errors);
    CHECK(result.status == 0);
    CHECK(contains(result.output, "encoder  batch 3  sequence 5  tokens 12  element_bytes 4"));
    CHECK(contains(result.output, "one in flight, acquire to answer checked, p50"));
  }
  SECTION("a wrong answer prints no figure") {
    EncoderFolder folder({4, 4, 4});
    find_tensor(folder.cases, "embeddings") = file_tensor("embeddings", {3, 8}, std::vector<float>(24, 0.5f));
    const ProgramResult result = measure(folder);
    CHECK(result.status == 2);
    CHECK_FALSE(contains(result.output, "one in flight"));
  }
  SECTION("so are cases of several lengths") {
    const ProgramResult result = measure(EncoderFolder({5, 1, 3}));
    INFO(result.output << result.errors);
    CHECK(result.status == 0);
    CHECK(contains(result.output, "encoder  batch 3  sequence 5  tokens 9  element_bytes 4"));
  }
}

TEST_CASE("A relative error sees a number that is none", "[tools][encoder]") {
  const std::vector<float> expected{3, 4};
  CHECK(relative_error(expected, expected) == 0);
  CHECK(relative_error(std::vector<float>{3, 4.625f}, expected) == 0.125);
  CHECK(relative_error(expected, std::vector<float>{0, 0}) == 5);
  CHECK(relative_error(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 4}, expected) ==
        std::numeric_limits<double>::infinity());
}
