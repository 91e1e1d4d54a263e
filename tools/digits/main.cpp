#include "digits/digits.h"
#include "digits/serve.h"
#include "digits/test_set.h"
#include "support/cuda_version.h"
#include "support/device_option.h"
#include "support/program.h"
#include "support/slots_option.h"
#include <weft/context.h>
#include <weft/prepared.h>

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

// Classifies the images of a test set with a trained model, and checks every answer.

namespace {

using weft::digits::ServeReport;
using weft::digits::TestSet;

struct Options {
  std::string data = "tests/data";
  std::uint32_t slots = 4;
  std::uint32_t batch = 32;
  std::size_t requests = 2000;
};

void print_setup(const weft::Context& context, const weft::digits::Layers& layers, const TestSet& set,
                 const Options& options) {
  const weft::DeviceProperties properties = context.properties();
  fmt::print("model   {}, {} images from {}\n", weft::digits::to_string(weft::digits::widths(layers)), set.rows,
             options.data);
  fmt::print("setup   {} slots, batch {}, encoder (fc1, fc2) and head (fc3 in {} splits) in one graph\n", options.slots,
             options.batch, weft::digits::splits_for(layers.back().in));
  fmt::print("device  {} ({}), driver {}\n", properties.name, to_string(context.device()),
             weft::tools::cuda_version_text(properties.driver_version));
}

void print_nodes(const weft::PreparedModel& prepared) {
  const weft::NodeCounts counts = prepared.node_counts();
  fmt::print("\nnodes of a slot's graph, read back from the device\n");
  fmt::print("  memset nodes     {:>10}\n", counts.memset_nodes);
  fmt::print("  kernel nodes     {:>10}\n", counts.kernel_nodes);
  fmt::print("  weft's own nodes {:>10}", counts.own_nodes);
  const char* separator = "  ";
  for (const weft::TopologyNode& node : prepared.topology().nodes) {
    if (node.kind != weft::NodeKind::own) continue;
    fmt::print("{}{}", separator, node.label);
    separator = ", ";
  }
  fmt::print("\n");
}

void print_memory(const weft::PreparedModel& prepared, std::uint64_t weight_bytes) {
  const weft::Topology& topology = prepared.topology();
  const weft::MemoryStatistics memory = prepared.context().memory();
  fmt::print("\nmemory                          bytes\n");
  fmt::print("  weights, shared  {:>20}\n", weight_bytes);
  fmt::print("  a slot requests  {:>20}\n", topology.requested_bytes);
  fmt::print("  a slot reserves  {:>20}\n", topology.reserved_bytes);
  fmt::print("  all requested    {:>20}\n", memory.requested.live_bytes);
  fmt::print("  all reserved     {:>20}\n", memory.reserved.live_bytes);
  fmt::print("  pinned staging   {:>20}\n", memory.staging.live_bytes);
}

void print_latency(const char* what, const weft::tools::Percentiles& latency) {
  fmt::print("  {:<18} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", what, latency.p50, latency.p90, latency.p99,
             latency.max);
}

void print_times(const ServeReport& alone, const ServeReport& full, const Options& options) {
  fmt::print("\nus from submit to the return of wait, the queue behind other slots included\n");
  fmt::print("  {:<18} {:>9} {:>9} {:>9} {:>9}\n", "in flight", "p50", "p90", "p99", "max");
  print_latency("1", alone.latency_us);
  print_latency(std::to_string(options.slots).c_str(), full.latency_us);
  fmt::print("\nthroughput, {} in flight: {:.0f} requests/s, {:.0f} images/s ({} requests, every answer checked)\n\n",
             options.slots, static_cast<double>(full.requests) / full.seconds,
             static_cast<double>(full.images) / full.seconds, full.requests);
}

/// The contract of the last line: two spaces between fields.
void print_result(const weft::Context& context, const ServeReport& full, double error, std::size_t rows,
                  std::uint32_t slots) {
  fmt::print("correct {}/{}  max |logit error| {:.1e}  device {}  slots {}  p50 {:.1f} us  p99 {:.1f} us\n",
             full.correct, rows, error, context.properties().name, slots, full.latency_us.p50, full.latency_us.p99);
}

int classify(weft::Device device, const Options& options) {
  const std::filesystem::path folder = options.data;
  const weft::digits::Layers layers = weft::digits::read_layers(folder / weft::digits::kModelFile);
  const TestSet set = weft::digits::read_test_set(folder / weft::digits::kTestFile, weft::digits::widths(layers));
  const weft::Context context = weft::Context::open(device);
  print_setup(context, layers, set, options);

  const weft::digits::Model model = weft::digits::build(context, layers, options.batch);
  weft::PreparedModel prepared = weft::digits::prepare(model, {.slots = options.slots});
  print_nodes(prepared);
  print_memory(prepared, model.weight_bytes);

  const ServeReport full = weft::digits::serve(prepared, set, options.batch, options.requests, options.slots);
  const ServeReport alone = weft::digits::serve(prepared, set, options.batch, options.requests, 1);
  print_times(alone, full, options);

  const double error = std::max(full.max_logit_error, alone.max_logit_error);
  if (error > set.tolerance())
    spdlog::error("A logit is off by {:.1e}; the reference allows {:.1e}.", error, set.tolerance());
  print_result(context, full, error, set.rows, options.slots);
  return error > set.tolerance() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Classifies handwritten digits with a trained model and checks every answer.\n"
      "Exit status: 0, 1 when an answer is wrong, 2 when it could not be asked for.",
      "weft-digits");
  Options options;
  const weft::tools::DeviceOption device(app, "auto");
  app.add_option("--data", options.data, "Folder with digits.safetensors and digits_test.safetensors")
      ->capture_default_str();
  weft::tools::add_slots_option(app, options.slots);
  app.add_option("--batch", options.batch, "Images of a request")->capture_default_str();
  app.add_option("--requests", options.requests, "Requests to serve, at least one pass over the images")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
  return weft::tools::run_program(app, argc, argv, [&] { return classify(device.choose(), options); });
}
