#include "support/session_work.h"

#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/limits_device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
using Values = std::vector<std::uint8_t>;

/// A session whose calls of the device are counted.
struct CountedSession {
  std::shared_ptr<CountingDevice> device = std::make_shared<CountingDevice>(open_device(test_device()));
  ScopedDevice scoped{test_device(), device};
  TestSession test;
};

/// Checks a refusal, and that the session works on.
template <class Call>
void check_refused(ModelSession& session, const Call& call, const std::string& sentence,
                   const std::vector<std::string>& contexts = {}) {
  const Error error = refusal(call);
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == sentence);
  CHECK(error.contexts() == contexts);
  session.synchronize();
}

std::uint32_t word_of(const Values& bytes) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < sizeof(word); ++i) word |= std::uint32_t{bytes[i]} << (8 * i);
  return word;
}

}  // namespace

TEST_CASE("Scratch takes memory with its first use and holds zeroes then", "[model][S6]") {
  CountedSession counted;
  ModelSession& session = counted.test.session;
  const CountingDevice& device = *counted.device;
  const std::uint64_t allocations = device.count(Verb::allocate);
  const std::uint64_t pinned = device.count(Verb::allocate_pinned);
  const Region x = session.allocate(kCount, {.label = "x"});
  const Region y = session.allocate_shared(kCount, "y");
  CHECK(device.count(Verb::allocate) == allocations);
  CHECK(device.count(Verb::allocate_pinned) == pinned);
  CHECK(read(session, x) == Values(kCount, 0));
  CHECK(device.count(Verb::allocate) == allocations + 1);
  CHECK(device.count(Verb::allocate_pinned) == pinned + 1);  // The readback.
  CHECK(read(session, y) == Values(kCount, 0));
  CHECK(device.count(Verb::allocate) == allocations + 1);
  CHECK(device.count(Verb::allocate_pinned) == pinned + 2);
  CHECK(read(session, x) == Values(kCount, 0));
  CHECK(device.count(Verb::allocate) == allocations + 1);
}

TEST_CASE("Bytes that are uploaded to a part of scratch are read back and leave the rest", "[model]") {
  TestSession test;
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const Region x = test.session.allocate(kCount, {.placement = placement});
    Values values = fresh_bytes(20, 1);
    Values expected(kCount, 0);
    std::ranges::copy(values, expected.begin() + 7);
    upload(test.session, x.slice(7, 20), values);
    std::ranges::fill(values, std::uint8_t{0xee});  // The bytes are the caller's again.
    CHECK(read(test.session, x) == expected);
    CHECK(read(test.session, x.slice(10, 3)) == Values(expected.begin() + 10, expected.begin() + 13));
  }
}

TEST_CASE("A shared allocation has its placement whichever way it is asked for", "[model]") {
  TestSession test;
  const auto x = test.session.allocate_shared<std::uint32_t>({4}, "x");
  const TensorRegion y = test.session.allocate_shared(TensorDesc(DType::u8, {kCount}), "y");
  CHECK(x.bytes == 16);
  CHECK(x.desc == TensorDesc(DType::u32, {4}));
  CHECK(y.bytes == kCount);
  const Values input = fresh_bytes(kCount, 1);
  const Region z = test.session.allocate_shared(kCount);
  upload(test.session, y, input);
  test.session.record("xor", {test.xor_of(y, z, 0x0f)});
  test.session.replay("xor");
  CHECK(read(test.session, z) == xored(input, 0x0f));
}

TEST_CASE("Several regions are read in order with one wait and one staging", "[model]") {
  CountedSession counted;
  ModelSession& session = counted.test.session;
  const Region x = session.allocate(kCount);
  const Region y = session.allocate_shared(2 * kCount);
  const Values a = fresh_bytes(kCount, 1);
  const Values b = fresh_bytes(2 * kCount, 2);
  upload(session, x, a);
  upload(session, y, b);
  const std::vector<Region> regions{y.slice(3, 100), x, x.slice(1, 1), y};
  const std::uint64_t waits = counted.device->count(Verb::synchronize_stream);
  const std::uint64_t copies = counted.device->count(Verb::copy);
  const std::uint64_t pinned = counted.device->count(Verb::allocate_pinned);
  const std::vector<std::vector<std::byte>> bytes = session.read_many(regions);
  CHECK(counted.device->count(Verb::synchronize_stream) == waits + 1);
  CHECK(counted.device->count(Verb::copy) == copies + regions.size());
  CHECK(counted.device->count(Verb::allocate_pinned) == pinned + 1);
  REQUIRE(bytes.size() == regions.size());
  const auto is = [](const std::vector<std::byte>& got, std::span<const std::uint8_t> expected) {
    return std::ranges::equal(got, std::as_bytes(expected));
  };
  CHECK(is(bytes[0], std::span(b).subspan(3, 100)));
  CHECK(is(bytes[1], a));
  CHECK(is(bytes[2], std::span(a).subspan(1, 1)));
  CHECK(is(bytes[3], b));

  // The staging stays for the reads that it is large enough for.
  CHECK(is(session.read_many({x}).front(), a));
  CHECK(counted.device->count(Verb::allocate_pinned) == pinned + 1);
  CHECK(session.read_many({}).empty());
  CHECK(counted.device->count(Verb::synchronize_stream) == waits + 2);
}

TEST_CASE("A recorded graph runs once for each replay and never by itself", "[model][T50]") {
  TestSession test;
  const Region x = test.session.allocate(4);
  test.session.record("count", {test.increment(grid(1), x, 3u)});
  test.session.synchronize();
  CHECK(word_of(read(test.session, x)) == 0);
  test.session.replay("count");
  test.session.replay("count");
  CHECK(word_of(read(test.session, x)) == 6);
  for (int i = 0; i < 100; ++i) test.session.replay("count");
  CHECK(word_of(read(test.session, x)) == 306);
}

TEST_CASE("A graph that is recorded under a key again takes the place of the first", "[model]") {
  CountedSession counted;
  TestSession& test = counted.test;
  const Region x = test.session.allocate(4);
  test.session.record("count", {test.increment(grid(1), x, 1u)});
  test.session.record("other", {test.increment(grid(1), x, 1000u)});
  test.session.replay("count");
  const std::uint64_t destroyed = counted.device->count(Verb::destroy_executable);
  test.session.record("count", {test.increment(grid(1), x, 10u)});  // While the first may run.
  CHECK(counted.device->count(Verb::destroy_executable) == destroyed + 1);
  test.session.replay("count");
  test.session.replay("other");
  CHECK(word_of(read(test.session, x)) == 1011);
}

TEST_CASE("A record that is refused keeps the graph under its key", "[model]") {
  TestSession test;
  const Region x = test.session.allocate(4, {.label = "x"});
  test.session.record("count", {test.increment(grid(1), x, 1u)});
  const std::vector<std::string> contexts{"recording the graph \"count\""};
  check_refused(
      test.session, [&] { test.session.record("count", {}); }, "The graph \"count\" has no commands.", contexts);
  check_refused(test.session,
                [&] {
                  test.session.record("count", {fill(x, 0), fill(x.slice(4, 0), 0)});
                },
                "The fill of allocation \"x\" is empty.", {"validating commands[1], fill", contexts[0]});
  test.session.replay("count");
  CHECK(word_of(read(test.session, x)) == 1);
}

TEST_CASE("Immediate work runs in the order of its calls", "[model]") {
  TestSession test;
  const Region x = test.session.allocate(4 * kCount, {.label = "x"});
  const Region y = test.session.allocate(4 * kCount, {.label = "y"});
  const Values first = fresh_bytes(4 * kCount, 1);
  const Values second = fresh_bytes(4 * kCount, 2);
  test.session.record("copy", {test.slow_copy(workload(kCount), x, y, kCount, std::uint64_t{2000000})});
  upload(test.session, x, first);
  test.session.replay("copy");
  upload(test.session, x, second);
  CHECK(read(test.session, y) == first);
  test.session.replay("copy");
  CHECK(read(test.session, y) == second);
}

TEST_CASE("Commands of a recorded graph are ordered by the bytes that they touch", "[model]") {
  TestSession test;
  const Region x = test.session.allocate(kCount);
  const Region h = test.session.allocate(kCount);
  const Region y = test.session.allocate(kCount);
  test.session.record("chain", {fill(x, 0x12), test.xor_of(x, h, 0xff), fill(x, 0), test.xor_of(h, y, 0x0f)});
  for (int i = 0; i < 20; ++i) {
    test.session.replay("chain");
    CHECK(read(test.session, y) == Values(kCount, 0x12 ^ 0xff ^ 0x0f));
    CHECK(read(test.session, x) == Values(kCount, 0));
  }
}

TEST_CASE("A session writes its weights until it is frozen", "[model][S30]") {
  TestSession test;
  const auto w = test.weight(Values(kCount, 1));
  const Region y = test.session.allocate(kCount);
  const Values head = fresh_bytes(16, 3);
  upload(test.session, w.slice(0, 16), head);
  test.session.record("prepare", {fill(w.slice(16, 16), 9), test.xor_of(w, y, 0x55), test.xor_of(y, w, 0)});
  test.session.replay("prepare");
  Values expected(kCount, 1);
  std::ranges::copy(head, expected.begin());
  std::fill(expected.begin() + 16, expected.begin() + 32, std::uint8_t{9});
  expected = xored(std::move(expected), 0x55);
  CHECK(read(test.session, w) == expected);

  const auto out = test.session.allocate<std::uint8_t>({kCount}, {.label = "out"});
  const ModelDefinition model = test.freeze();
  const Error error =
      refusal([&] { static_cast<void>(model.fragment(trusted, {.commands = {fill(w.slice(16, 16), 9)}})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The fill targets the weight \"w\", which is immutable.");
  PreparedModel prepared = model.fragment(trusted, {.outputs = {out}, .commands = {test.xor_of(w, out, 0)}}).prepare();
  CHECK(infer(prepared, {}) == expected);
}

TEST_CASE("A fill in a recorded graph is a kernel where the driver takes no memset nodes on its pool", "[model]") {
  const auto device = std::make_shared<LimitsDevice>(
      open_device(test_device()), [](DeviceLimits& limits) { limits.fill_nodes_on_pool_memory = false; });
  const auto counting = std::make_shared<CountingDevice>(device);
  const ScopedDevice scoped(test_device(), counting);
  ModelSession session(test_device());
  const Region x = session.allocate(kCount);
  session.record("fill", {fill(x.slice(1, 5), 0xab)});
  session.record("again", {fill(x.slice(2, 1), 0xcd)});
  CHECK(counting->count(Verb::load) == 1);
  session.replay("fill");
  session.replay("again");
  Values expected(kCount, 0);
  std::fill(expected.begin() + 1, expected.begin() + 6, std::uint8_t{0xab});
  expected[2] = 0xcd;
  CHECK(read(session, x) == expected);
}

TEST_CASE("Regions of immediate work are checked like those of a fragment", "[model][S14][S15][S16][S17]") {
  TestSession test;
  ModelSession& session = test.session;
  const Region x = session.allocate(kCount, {.label = "x"});
  Values values(kCount);
  const auto check_all = [&](const Region& region, const std::string& sentence, const std::string& upload_sentence,
                             const std::string& read_sentence) {
    const std::string uploaded = upload_sentence.empty() ? sentence : upload_sentence;
    const std::string was_read = read_sentence.empty() ? sentence : read_sentence;
    check_refused(
        session, [&] { upload(session, region, values); }, uploaded);
    check_refused(
        session, [&] { session.read(region, std::as_writable_bytes(std::span(values))); }, was_read);
    check_refused(session,
                  [&] {
                    static_cast<void>(session.read_many({x, region}));
                  },
                  was_read, {"reading regions[1]"});
    check_refused(session, [&] { session.record("k", {fill(region, 1)}); }, sentence,
                  {"validating commands[0], fill", "recording the graph \"k\""});
  };
  Region region = x;
  region.session += 1000000;
  check_all(region,
            "The region belongs to session " + std::to_string(region.session) + "; this is session " +
                std::to_string(x.session) + ".",
            {}, {});
  region = x;
  region.allocation = 7;
  check_all(region, "The region names allocation 7; the session has 1.", {}, {});
  region = x;
  region.offset = 1;
  check_all(region, "The region of 64 bytes at byte 1 passes the 64 bytes of allocation \"x\".", {}, {});
  region.offset = ~std::uint64_t{0};
  check_all(region, "The region of 64 bytes at byte 18446744073709551615 passes the 64 bytes of allocation \"x\".", {},
            {});
  check_all(x.slice(kCount, 0), "The fill of allocation \"x\" is empty.", "The upload of allocation \"x\" is empty.",
            "The read of allocation \"x\" is empty.");
}

TEST_CASE("An upload or a read of another size than its region is refused", "[model]") {
  TestSession test;
  ModelSession& session = test.session;
  const Region x = session.allocate(kCount, {.label = "x"});
  for (const std::uint64_t bytes : {std::uint64_t{0}, kCount - 1, kCount + 1}) {
    Values values(bytes);
    check_refused(
        session, [&] { upload(session, x, values); },
        "The region of allocation \"x\" has 64 bytes; " + std::to_string(bytes) + " are given.");
    check_refused(
        session, [&] { session.read(x, std::as_writable_bytes(std::span(values))); },
        "The region of allocation \"x\" has 64 bytes; there is room for " + std::to_string(bytes) + ".");
  }
}

TEST_CASE("A kernel of another session is refused when it is recorded", "[model]") {
  TestSession test;
  const TestSession other;
  const Region x = test.session.allocate(4);
  check_refused(test.session, [&] { test.session.record("k", {other.increment(grid(1), x, 1u)}); },
                "The kernel belongs to session " + std::to_string(other.increment.id().session) + "; this is session " +
                    std::to_string(x.session) + ".",
                {"validating commands[0], dispatch", "recording the graph \"k\""});
}

TEST_CASE("A replay of what is not recorded is refused", "[model]") {
  TestSession test;
  check_refused(test.session, [&] { test.session.replay("nothing"); }, "The session has recorded no graph \"nothing\".",
                {"replaying the graph \"nothing\""});
}

}  // namespace weft::test
