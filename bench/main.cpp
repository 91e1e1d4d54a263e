#include "digits.h"
#include "digits/digits.h"
#include "digits/test_set.h"
#include "encoder.h"
#include "encoder/bert_file.h"
#include "encoder/cases.h"
#include "encoder/check.h"
#include "encoder/elements.h"
#include "encoder/encoder.h"
#include "line.h"
#include "machine.h"
#include "measure.h"
#include "prepare.h"
#include "report.h"
#include "runner.h"
#include "support/device_option.h"
#include "support/program.h"
#include "support/slots_option.h"
#include "weft_runner.h"
#include <weft/context.h>
#include <weft/error.h>

#if WEFT_CUDA
#include "raw_twin.h"
#endif

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

// Measures weft beside hand-written CUDA of the same work, in turns in one process.

namespace {

using namespace weft::bench;

struct Options {
  std::string work;
  std::uint32_t slots = 16;
  std::uint32_t batch = 32;
  std::uint32_t nodes = 1;
  std::size_t repetitions = 9;
  std::size_t requests = 0;  // 0: what the device does in little time.
  std::string data = "tests/data";
  std::string model;
  std::string cases;
  std::string dtype = "f16";
  std::string json;
};

/// Both sides of a work, and the requests that they are asked.
struct Contest {
  Exchange exchange;
  std::unique_ptr<Runner> weft;
  std::unique_ptr<Runner> raw;  ///< Empty on the host device.
};

bool is_gpu(const weft::Context& context) { return context.device().kind == weft::Device::Kind::cuda; }

Contest line_contest(const weft::Context& context, const Options& options) {
  Contest contest{line_exchange(options.nodes),
                  std::make_unique<WeftRunner>(make_line(context, options.nodes).prepare({.slots = options.slots})),
                  nullptr};
#if WEFT_CUDA
  if (is_gpu(context)) contest.raw = raw_line(context.device().ordinal, options.nodes, options.slots);
#endif
  return contest;
}

Contest digits_contest(const weft::Context& context, const Options& options) {
  namespace digits = weft::digits;
  const std::filesystem::path folder = options.data;
  const digits::Layers layers = digits::read_layers(folder / digits::kModelFile);
  const digits::TestSet set = digits::read_test_set(folder / digits::kTestFile, digits::widths(layers));
  const digits::Model model = digits::build(context, layers, options.batch);
  Contest contest{digits_exchange(set, options.batch),
                  std::make_unique<WeftRunner>(digits::prepare(model, {.slots = options.slots})), nullptr};
#if WEFT_CUDA
  if (is_gpu(context)) contest.raw = raw_digits(context.device().ordinal, layers, options.batch, options.slots);
#endif
  return contest;
}

Volume volume_of(const weft::Context& context, const Options& options) {
  constexpr std::size_t kGpuRequests = 2000;
  constexpr std::size_t kHostRequests = 100;
  constexpr std::size_t kThroughputFactor = 10;
  const std::size_t requests =
      options.requests != 0 ? options.requests : (is_gpu(context) ? kGpuRequests : kHostRequests);
  return {options.slots, requests, kThroughputFactor * requests};
}

/// Measures both sides in turns. Who goes first changes, so that neither has the warmer GPU throughout.
template <class Measure>
void alternate(std::size_t repetitions, Report& report, bool has_raw, const Measure& measure) {
  for (std::size_t i = 0; i < repetitions; ++i) {
    if (has_raw && i % 2 == 0) report.raw.push_back(measure(false));
    report.weft.push_back(measure(true));
    if (has_raw && i % 2 == 1) report.raw.push_back(measure(false));
  }
}

void measure_requests(const weft::Context& context, const Options& options, Report& report) {
  const bool is_line = options.work == "line";
  Contest contest = is_line ? line_contest(context, options) : digits_contest(context, options);
  const Volume volume = volume_of(context, options);
  report.parameters = {{is_line ? "nodes" : "batch", is_line ? options.nodes : options.batch},
                       {"bytes_in", contest.exchange.input_floats() * sizeof(float)},
                       {"bytes_out", contest.exchange.answer_floats() * sizeof(float)},
                       {"slots", options.slots},
                       {"repetitions", options.repetitions},
                       {"latency_requests", volume.latency_requests},
                       {"throughput_requests", volume.throughput_requests}};
  Meter weft("weft", *contest.weft, contest.exchange);
  std::optional<Meter> raw;
  if (contest.raw != nullptr) raw.emplace("the raw twin", *contest.raw, contest.exchange);
  alternate(options.repetitions, report, raw.has_value(),
            [&](bool is_weft) { return (is_weft ? weft : *raw).measure(volume); });
}

void measure_encoder(const weft::Context& context, const Options& options, Report& report) {
  namespace encoder = weft::encoder;
  const encoder::Bert bert = encoder::read_bert(options.model);
  const encoder::Cases cases = encoder::read_cases(options.cases, bert.config);
  const encoder::Encoder built(context, bert, encoder::element_named(options.dtype), {cases.count, cases.sequence});
  const Exchange exchange = encoder_exchange(cases, built.dtype());
  const std::unique_ptr<WeftRunner> runner = encoder_runner(built, cases, options.slots);
  const Volume volume = volume_of(context, options);
  report.is_gpu = is_gpu(context);
  report.parameters = {{"batch", cases.count},
                       {"sequence", cases.sequence},
                       {"tokens", static_cast<std::uint64_t>(
                                      std::accumulate(cases.lengths.begin(), cases.lengths.end(), std::int64_t{0}))},
                       {"element_bytes", size_of(built.dtype())},
                       {"layer_weight_bytes", layer_weight_bytes(built)},
                       {"slots", options.slots},
                       {"repetitions", options.repetitions},
                       {"latency_requests", volume.latency_requests},
                       {"throughput_requests", volume.throughput_requests}};
  Meter meter("weft", *runner, exchange);
  for (std::size_t i = 0; i < options.repetitions; ++i) report.weft.push_back(meter.measure(volume));
}

void measure_preparation(const weft::Context& context, const Options& options, Report& report) {
  report.figures = kPrepareFigures;
  report.parameters = {{"nodes", options.nodes}, {"slots", options.slots}, {"repetitions", options.repetitions}};
  const weft::ModelFragment fragment = make_line(context, options.nodes);
  const Exchange exchange = line_exchange(options.nodes);
  const Preparation weft = [&] { return std::make_unique<WeftRunner>(fragment.prepare({.slots = options.slots})); };
  Preparation raw;
#if WEFT_CUDA
  constexpr std::uint32_t kThreads = 4;  // Beyond which instantiating gets no faster.
  if (is_gpu(context)) {
    raw = [&] {
      return raw_line(context.device().ordinal, options.nodes, options.slots, std::min(kThreads, options.slots));
    };
  }
#endif
  const auto measure = [&](bool is_weft) {
    return measure_prepare(is_weft ? "weft" : "the raw twin", is_weft ? weft : raw, exchange, options.nodes,
                           options.slots);
  };
  static_cast<void>(measure(true));  // What the driver does once a process.
  alternate(options.repetitions, report, raw != nullptr, measure);
}

void append(const std::string& path, const std::string& lines) {
  std::ofstream file(path, std::ios::app);
  file << lines;
  file.close();
  if (!file) throw weft::Error(weft::ErrorCode::io, fmt::format("The file \"{}\" cannot be written.", path));
}

int run(weft::Device device, const Options& options) {
  const weft::Context context = weft::Context::open(device);
  Report report{.work = options.work, .parameters = {}, .machine = describe_machine(context), .weft = {}, .raw = {}};
  const auto measure = options.work == "prepare"   ? measure_preparation
                       : options.work == "encoder" ? measure_encoder
                                                   : measure_requests;
  measure(context, options, report);
  const std::string text = to_text(report);
  fmt::print("{}", text);
  if (!options.json.empty()) append(options.json, to_json_lines(report));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures weft beside hand-written CUDA of the same work, in turns in one process. Every answer is checked; a "
      "run\n"
      "with a wrong one prints no figure. On the host device there is no twin.\n"
      "digits: the model of --data. line: a chain of kernels that scale 1024 floats, 4 KiB in and out. prepare: until "
      "all\n"
      "slots of such a line are ready. encoder: a BERT on the cases of one file as one batch, words in to embeddings "
      "out,\n"
      "without a twin: bench/peers holds PyTorch to the same files.",
      "weft-bench");
  Options options;
  app.add_option("work", options.work, "digits, encoder, line or prepare")
      ->required()
      ->check(CLI::IsMember({"digits", "encoder", "line", "prepare"}));
  const weft::tools::DeviceOption device(app, "auto");
  weft::tools::add_slots_option(app, options.slots);
  app.add_option("--batch", options.batch, "digits: images of a request")->capture_default_str();
  app.add_option("--nodes", options.nodes, "line, prepare: kernels of a request")->capture_default_str();
  app.add_option("--repetitions", options.repetitions, "How often each side is measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--requests", options.requests,
                 "Requests of a repetition, one in flight; ten times as many with all slots in flight (2000 on a GPU, "
                 "100 on the host device)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{10'000'000}));
  app.add_option("--data", options.data, "digits: folder of the model and its test set")->capture_default_str();
  app.add_option("--model", options.model, "encoder: a BERT in Hugging Face's format, a file or a folder");
  app.add_option("--cases", options.cases, "encoder: a safetensors file with input_ids, attention_mask and embeddings");
  app.add_option("--dtype", options.dtype, "encoder: what weights and activations are kept in")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--json", options.json, "Appends JSON lines to this file");
  return weft::tools::run_program(app, argc, argv, [&] { return run(device.choose(), options); });
}
