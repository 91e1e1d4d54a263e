#include "digits/digits.h"
#include "serving/load.h"
#include "serving/server.h"
#include "support/device_option.h"
#include "support/program.h"
#include "support/slots_option.h"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

// A small server of the digits model, and the clients that test it: the program of docs/serving.md.

namespace {

using weft::serving::LoadOptions;
using weft::serving::LoadReport;
using weft::serving::ServerOptions;

void add_server_options(CLI::App& app, ServerOptions& options, std::uint32_t& linger_us) {
  app.add_option("--port", options.port, "Port of 127.0.0.1; 0 takes a free one")->capture_default_str();
  app.add_option("--batches", options.batches, "Batch sizes to prepare")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{4096}));
  weft::tools::add_slots_option(app, options.slots);
  app.add_option("--queue", options.batching.capacity, "Requests that wait; more are shed")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1'000'000}));
  app.add_option("--linger-us", linger_us, "How long a request waits for others to share its batch")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{0}, std::uint32_t{1'000'000}));
}

void add_load_options(CLI::App& app, LoadOptions& options) {
  app.add_option("--port", options.port, "Port of 127.0.0.1 where the server listens")->required();
  app.add_option("--requests", options.requests, "Requests to send")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{100'000'000}));
  app.add_option("--connections", options.connections, "Connections, each with a thread")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{256}));
  app.add_option("--in-flight", options.in_flight, "Requests of a connection that wait for their replies")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1024}));
  app.add_option("--patience-us", options.patience_us, "Time from a request's arrival to its deadline")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Longest wait for a reply")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{3600}));
}

int send_load(const std::string& data, const LoadOptions& options) {
  const std::filesystem::path folder = data;
  const auto widths = weft::digits::widths(weft::digits::read_layers(folder / weft::digits::kModelFile));
  const auto set = weft::digits::read_test_set(folder / weft::digits::kTestFile, widths);
  weft::serving::Load load(set, options);
  fmt::print("connected 127.0.0.1:{}\n", options.port);
  std::fflush(stdout);
  const LoadReport report = load.run();
  fmt::print("sent {}  answered {}  shed {}  late {}  failed {}  lost {}  wrong {}\n", report.sent, report.answered,
             report.shed, report.late, report.failed, report.lost, report.wrong);
  fmt::print("correct {}/{}  p50 {:.1f} us  p90 {:.1f} us  p99 {:.1f} us  max {:.1f} us\n", report.correct,
             report.answered, report.latency_us.p50, report.latency_us.p90, report.latency_us.p99,
             report.latency_us.max);
  return report.sent == options.requests && report.failed + report.lost + report.wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Serves the digits model over TCP with dynamic batches, deadlines and shedding; or sends it load.\n"
      "Exit status: 0, 1 when a request is lost or wrongly answered, 2 when it could not do what it was asked for.",
      "weft-serve-example");
  std::string data = "tests/data";
  app.add_option("--data", data, "Folder with digits.safetensors and digits_test.safetensors")->capture_default_str();
  app.require_subcommand(1);
  CLI::App& serving = *app.add_subcommand("serve", "Serve until SIGTERM");
  CLI::App& loading = *app.add_subcommand("load", "Send test images and check every answer");
  ServerOptions server;
  auto linger_us = static_cast<std::uint32_t>(server.batching.linger.count());
  LoadOptions load;
  const weft::tools::DeviceOption device(serving, "auto");
  add_server_options(serving, server, linger_us);
  add_load_options(loading, load);
  return weft::tools::run_program(app, argc, argv, [&] {
    if (loading.parsed()) return send_load(data, load);
    server.data = data;
    server.batching.linger = std::chrono::microseconds(linger_us);
    return weft::serving::serve(device.choose(), server);
  });
}
