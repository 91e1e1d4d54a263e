#include "encoder/bert_file.h"
#include "encoder/cases.h"
#include "encoder/check.h"
#include "encoder/elements.h"
#include "encoder/encoder.h"
#include "encoder/matmul.h"
#include "support/cuda_version.h"
#include "support/device_option.h"
#include "support/program.h"
#include <weft/context.h>
#include <weft/error.h>

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <cstddef>
#include <string>
#include <vector>

// Runs a BERT encoder on cases with known answers, in one batch and each alone, and prints how far it is from them.

namespace {

using namespace weft::encoder;

struct Options {
  std::string model = "tests/data/tiny_bert.safetensors";
  std::string cases = "tests/data/tiny_bert_cases.safetensors";
  std::string dtype = "f32";
};

void print_setup(const weft::Context& context, const Encoder& encoder, const Cases& cases, const Options& options) {
  const BertConfig& config = encoder.config();
  const weft::DeviceProperties properties = context.properties();
  fmt::print("model   {}: {} layers, hidden {}, {} heads, intermediate {}, {} words, {} positions\n", options.model,
             config.layers, config.hidden, config.heads, config.intermediate, config.words, config.positions);
  fmt::print("setup   {}, {} bytes of weights, {} cases of up to {} tokens from {}\n", to_string(encoder.dtype()),
             encoder.weight_bytes(), cases.count, cases.sequence, options.cases);
  fmt::print("device  {} ({}), driver {}\n\n", properties.name, to_string(context.device()),
             weft::tools::cuda_version_text(properties.driver_version));
}

void print_cases(const std::vector<CaseReport>& reports, Bucket together) {
  fmt::print("relative error            in {:<9}                 alone\n", to_string(together));
  fmt::print("{:>5} {:>7} {:>11} {:>11} {:>9} {:>11} {:>11}\n", "case", "length", "hidden", "embeddings", "bucket",
             "hidden", "embeddings");
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const CaseReport& report = reports[i];
    fmt::print("{:>5} {:>7} {:>11.1e} {:>11.1e} {:>9} {:>11.1e} {:>11.1e}\n", i, report.length, report.batched.states,
               report.batched.embeddings, to_string(report.bucket), report.alone.states, report.alone.embeddings);
  }
}

int check_cases(weft::Device device, const Options& options) {
  const Bert bert = read_bert(options.model);
  const Cases cases = read_cases(options.cases, bert.config);
  if (cases.states.empty()) {
    throw weft::Error(weft::ErrorCode::invalid,
                      fmt::format("The cases \"{}\" have no tensor last_hidden_state to compare with.", options.cases));
  }
  const weft::Context context = weft::Context::open(device);
  if (device.kind == weft::Device::Kind::cuda && !has_cublas())
    spdlog::info("This build has no cuBLASLt; weft's own kernels multiply, which are slower for many rows.");
  const Encoder encoder(context, bert, element_named(options.dtype), largest_bucket(cases, bert.config.positions));
  print_setup(context, encoder, cases, options);

  const std::vector<CaseReport> reports = check(encoder, cases);
  print_cases(reports, {cases.count, cases.sequence});
  Errors worst;
  for (const CaseReport& report : reports) worst = max(worst, max(report.batched, report.alone));

  const double bound = error_bound(encoder.dtype());
  const bool is_within = worst.states <= bound && worst.embeddings <= bound;
  if (!is_within)
    spdlog::error("The answers are off by more than {:.0e} relative, which {} must keep.", bound, options.dtype);
  fmt::print("max relative error hidden {:.1e} embeddings {:.1e} device {}\n", worst.states, worst.embeddings,
             context.properties().name);
  return is_within ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Runs a BERT encoder on cases with known answers and prints its relative errors.\n"
      "Exit status: 0, 1 when an answer is too far off, 2 when it could not be asked for.",
      "weft-encoder");
  Options options;
  const weft::tools::DeviceOption device(app, "auto");
  app.add_option("--model", options.model,
                 "A BERT in Hugging Face's format: a safetensors file with its sizes, or a folder with config.json")
      ->capture_default_str();
  app.add_option("--cases", options.cases,
                 "A safetensors file: input_ids, attention_mask, last_hidden_state and embeddings")
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "What weights and activations are kept in")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  return weft::tools::run_program(app, argc, argv, [&] { return check_cases(device.choose(), options); });
}
