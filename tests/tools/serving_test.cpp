#include "catch.h"
#include "runtime/memory_work.h"
#include "serving/batcher.h"
#include "serving/model.h"
#include "serving/protocol.h"
#include "serving/socket.h"
#include "support/deadlines.h"
#include "tools/program.h"
#include <weft/safetensors.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// The server of docs/serving.md under load from a second process, over loopback.

namespace {

using namespace weft::test;
using weft::serving::Batcher;
using weft::serving::Clock;
using weft::serving::connect_local;
using weft::serving::Descriptor;
using weft::serving::ReplyHeader;
using weft::serving::RequestHeader;
using weft::serving::Status;

const std::string kData = WEFT_TEST_DATA;
constexpr const char* kPatient = "30000000";  // Microseconds: longer than any machine of the suite needs.

/// The numbers of the first line of `text` that names all of them, as in "sent 5  answered 4".
using Counts = std::map<std::string, std::uint64_t>;
Counts counts_of(const std::string& text, const std::string& first) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(first + " ")) continue;
    Counts counts;
    std::istringstream words(line);
    for (std::string name; words >> name;) words >> counts[name];
    return counts;
  }
  FAIL("There is no line of " << first << " in:\n" << text);
  return {};
}

/// A server, and clients of it.
class Server {
 public:
  explicit Server(std::vector<std::string> options = {})
      : program_("weft-serve-example", arguments(std::move(options))),
        port_(program_.wait_for_line("listening 127.0.0.1:")) {}

  [[nodiscard]] std::uint16_t port() const { return static_cast<std::uint16_t>(std::stoul(port_)); }

  [[nodiscard]] std::vector<std::string> load_arguments(std::vector<std::string> options) const {
    options.insert(options.begin(), {"--data", kData, "load", "--port", port_});
    return options;
  }
  [[nodiscard]] ProgramResult load(std::vector<std::string> options) const {
    return run_program("weft-serve-example", load_arguments(std::move(options)));
  }
  /// The same, of which every request is answered for and no answer is wrong.
  [[nodiscard]] Counts checked_load(std::vector<std::string> options) const {
    const ProgramResult result = load(std::move(options));
    INFO(result.output << result.errors);
    REQUIRE(result.status == 0);
    Counts counts = counts_of(result.output, "sent");
    REQUIRE(counts["answered"] + counts["shed"] + counts["late"] == counts["sent"]);
    REQUIRE(counts["failed"] + counts["lost"] + counts["wrong"] == 0);
    return counts;
  }

  /// Ends the server; what it says that it did.
  Counts end() {
    const ProgramResult result = program_.terminate();
    INFO(result.output << result.errors);
    REQUIRE(result.status == 0);
    CHECK(!contains(result.errors, "error"));
    CHECK(refusal([&] { static_cast<void>(connect_local(port(), 1)); }).code() == weft::ErrorCode::io);
    return counts_of(result.output, "answered");
  }

 private:
  static std::vector<std::string> arguments(std::vector<std::string> options) {
    options.insert(options.begin(), {"--data", kData, "serve", "--device", device_argument()});
    return options;
  }

  RunningProgram program_;
  std::string port_;
};

}  // namespace

TEST_CASE("A server answers every request of another process rightly and ends on a signal", "[tools][serving]") {
  Server server;
  // 1000 requests come to each of the 500 images twice, of which 495 are classified as their labels say.
  const ProgramResult result =
      server.load({"--requests", "1000", "--connections", "4", "--in-flight", "8", "--patience-us", kPatient});
  INFO(result.output << result.errors);
  REQUIRE(result.status == 0);
  CHECK(counts_of(result.output, "sent") ==
        Counts{{"sent", 1000}, {"answered", 1000}, {"shed", 0}, {"late", 0}, {"failed", 0}, {"lost", 0}, {"wrong", 0}});
  CHECK(contains(result.output, "correct 990/1000  p50 "));
  const Counts done = server.end();
  CHECK(done == Counts{{"answered", 1000}, {"shed", 0}, {"late", 0}, {"failed", 0}});
}

TEST_CASE("A server whose queue is full sheds at once and answers the rest", "[tools][serving]") {
  // The batches wait for others, so that the queue of one stays full.
  Server server({"--queue", "1", "--batches", "4", "--linger-us", "50000"});
  const Counts counts =
      server.checked_load({"--requests", "64", "--connections", "1", "--in-flight", "64", "--patience-us", kPatient});
  CHECK(counts.at("shed") > 0);
  CHECK(counts.at("answered") > 0);
  CHECK(counts.at("late") == 0);
  const Counts done = server.end();
  CHECK(done.at("answered") == counts.at("answered"));
  CHECK(done.at("shed") == counts.at("shed"));
}

TEST_CASE("A server answers nothing behind its deadline", "[tools][serving]") {
  Server server;
  const Counts counts =
      server.checked_load({"--requests", "100", "--connections", "2", "--in-flight", "4", "--patience-us", "1"});
  CHECK(counts.at("answered") == 0);
  CHECK(counts.at("late") > 0);
  // And has learnt nothing from it that would keep it from answering others.
  CHECK(server.checked_load({"--requests", "50", "--patience-us", kPatient}).at("answered") == 50);
  static_cast<void>(server.end());
}

TEST_CASE("A signal under load ends a server that has answered what it took", "[tools][serving]") {
  Server server;
  RunningProgram clients("weft-serve-example", server.load_arguments({"--requests", "1000000", "--patience-us",
                                                                      kPatient, "--seconds", "20"}));
  static_cast<void>(clients.wait_for_line("connected "));
  const Counts others = server.checked_load({"--requests", "100", "--patience-us", kPatient});
  const Counts done = server.end();
  const ProgramResult result = clients.finish();
  INFO(result.output << result.errors);
  CHECK(result.status == 1);  // The rest of its requests met no server.
  Counts counts = counts_of(result.output, "sent");
  CHECK(counts["answered"] + counts["shed"] + counts["late"] + counts["lost"] == counts["sent"]);
  CHECK(counts["wrong"] == 0);
  CHECK(done.at("answered") == counts["answered"] + others.at("answered"));
}

TEST_CASE("A client that says something else loses its connection and no other does", "[tools][serving]") {
  Server server;
  const Descriptor stranger = connect_local(server.port(), 20);
  const RequestHeader header{.id = 1, .patience_us = 1000, .floats = 1u << 30};
  REQUIRE(send_all(stranger, std::as_bytes(std::span(&header, 1))));
  std::array<std::byte, 1> reply{};
  CHECK(!receive_all(stranger, reply));
  const Descriptor silent = connect_local(server.port(), 20);  // Half a request, and then nothing.
  REQUIRE(send_all(silent, std::as_bytes(std::span(&header, 1)).first(7)));
  CHECK(server.checked_load({"--requests", "50", "--patience-us", kPatient}).at("answered") == 50);
  static_cast<void>(server.end());
}

TEST_CASE("A server that is asked says that it is ready", "[tools][serving]") {
  Server server;
  const Descriptor client = connect_local(server.port(), 20);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const RequestHeader question{.id = id};
    REQUIRE(send_all(client, std::as_bytes(std::span(&question, 1))));
    ReplyHeader reply;
    REQUIRE(receive_all(client, std::as_writable_bytes(std::span(&reply, 1))));
    CHECK(reply.id == id);
    CHECK(reply.status == Status::answered);
    CHECK(reply.floats == 0);
  }
  CHECK(server.checked_load({"--requests", "50", "--patience-us", kPatient}).at("answered") == 50);
  CHECK(server.end().at("answered") == 50);
}

TEST_CASE("A server whose slots hang fails its requests and is not ready", "[tools][serving][R23][host-only]") {
  HeldContext held;
  const auto file = weft::Safetensors::open(kData + "/digits.safetensors");
  Batcher batcher(weft::serving::prepare_buckets(held.context, file, {1},
                                                 {.slots = 2, .hang_after = std::chrono::milliseconds(50)}),
                  {});
  const std::size_t pixels = file.tensor("fc1.weight").desc.shape()[1];
  const auto ask = [&](std::size_t floats) {
    auto status = std::make_shared<std::promise<Status>>();
    batcher.submit({std::vector<float>(floats), Clock::now(), in_a_minute(),
                    [status](Status outcome, std::span<const float>) { status->set_value(outcome); }});
    return status->get_future().get();
  };
  CHECK(ask(0) == Status::answered);
  held.device->hold();
  CHECK(ask(pixels) == Status::failed);
  CHECK(batcher.is_ready());  // The other slot is left.
  CHECK(ask(pixels) == Status::failed);
  CHECK(!batcher.is_ready());
  CHECK(ask(0) == Status::shed);
  CHECK(ask(pixels) == Status::failed);  // At once: there is no slot to wait for.
  CHECK(batcher.counters().failed == 3);
  held.device->release();
  batcher.drain();
}

TEST_CASE("A server without a model and clients without a server say so", "[tools][serving]") {
  const TemporaryFolder empty;
  const ProgramResult serving =
      run_program("weft-serve-example", {"--data", empty.path().string(), "serve", "--device", device_argument()});
  CHECK(serving.status == 2);
  CHECK(contains(serving.errors, "digits.safetensors"));
  const ProgramResult loading = run_program("weft-serve-example", {"--data", kData, "load", "--port", "1"});
  CHECK(loading.status == 2);
  CHECK(contains(loading.errors, "The system refuses to connect"));
  CHECK(run_program("weft-serve-example", {"serve", "--slots", "0"}).status == 2);
  CHECK(run_program("weft-serve-example", {}).status == 2);
}
