#include "sequencer.h"

#include "catch.h"
#include "context_state.h"
#include "device/faults.h"
#include "runtime/memory_work.h"
#include "support/call_count.h"
#include "support/deadlines.h"
#include <weft/completion_source.h>
#include <weft/error.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 100;

/// Two pieces of tracked memory and as many lanes as a context has, over a held device that counts its calls.
struct HeldSequencer {
  explicit HeldSequencer(HostOptions options = {}) : host(make_host_device(std::move(options))) {
    host->hold();
    for (std::size_t i = 0; i < Transfers::kMaxLanes; ++i) {
      lanes.push_back(&state.transfers().lane());
      static_cast<void>(submit(i, {}));
    }
    host->release();
    for (const TransferLane* lane : lanes) REQUIRE(eventually([&] { return lane->lane->has_finished(1); }));
    host->hold();
  }
  ~HeldSequencer() { host->drain(); }
  HeldSequencer(const HeldSequencer&) = delete;
  HeldSequencer& operator=(const HeldSequencer&) = delete;

  Completion submit(std::size_t lane, const std::vector<TrackedUse>& uses, const std::vector<Completion>& after = {}) {
    return state.transfers().submit(*lanes[lane], {.uses = uses, .producers = after}, {});
  }
  /// The waits of one stream for another that a submission takes.
  std::uint64_t waits(std::size_t lane, const std::vector<TrackedUse>& uses,
                      const std::vector<Completion>& after = {}) {
    const std::uint64_t before = device->count(Verb::wait_event);
    static_cast<void>(submit(lane, uses, after));
    return device->count(Verb::wait_event) - before;
  }
  void release_and_drain() {
    host->release();
    for (const TransferLane* lane : lanes) REQUIRE(eventually([&] { return lane->lane->has_drained(); }));
  }

  std::shared_ptr<HostDevice> host;
  std::shared_ptr<CountingDevice> device = std::make_shared<CountingDevice>(host);
  ScopedDevice scoped{Device::host(), device};
  Context context = Context::open(Device::host());
  ContextState& state = *ContextAccess::state(context);
  TrackedMemory a{state, "a", 0, nullptr, kBytes};
  TrackedMemory b{state, "b", 0, nullptr, kBytes};
  std::vector<const TransferLane*> lanes;
};

TrackedUse read(TrackedMemory& memory, std::uint64_t begin = 0, std::uint64_t end = kBytes) {
  return {&memory, begin, end, Access::read};
}
TrackedUse write(TrackedMemory& memory, std::uint64_t begin = 0, std::uint64_t end = kBytes) {
  return {&memory, begin, end, Access::write};
}

}  // namespace

TEST_CASE("Disjoint submissions never wait for one another", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  CHECK(held.waits(0, {write(held.a, 0, 50)}) == 0);
  CHECK(held.waits(1, {write(held.a, 50, 100)}) == 0);
  CHECK(held.waits(2, {write(held.b)}) == 0);
  CHECK(held.waits(3, {}) == 0);
}

TEST_CASE("Readers of the same bytes never wait for one another", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  CHECK(held.waits(0, {read(held.a)}) == 0);
  CHECK(held.waits(1, {read(held.a)}) == 0);
  CHECK(held.waits(2, {read(held.a, 10, 20)}) == 0);
}

TEST_CASE("A conflict of one byte makes a submission wait for the lane before it", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  CHECK(held.waits(0, {write(held.a, 0, 51)}) == 0);
  CHECK(held.waits(1, {read(held.a, 50, 60)}) == 1);
  CHECK(held.waits(2, {write(held.a, 59, 60)}) == 1);
  CHECK(held.waits(3, {{&held.a, 0, 1, Access::read_write}}) == 1);
}

TEST_CASE("A submission on the lane of its predecessors needs no event", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  CHECK(held.waits(0, {write(held.a)}) == 0);
  CHECK(held.waits(0, {write(held.a)}) == 0);
  CHECK(held.waits(0, {read(held.a), write(held.b)}) == 0);
}

TEST_CASE("A lane is waited for once however often it conflicts", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  CHECK(held.waits(0, {write(held.a, 0, 10), write(held.a, 20, 30), write(held.b)}) == 0);
  const Completion producer = held.submit(0, {read(held.b)});
  CHECK(held.waits(1, {read(held.a), read(held.b), write(held.a, 90, 100)}, {producer, producer}) == 1);
}

TEST_CASE("A producer is waited for though it entered no use", "[runtime][sequencer][R37][host-only]") {
  HeldSequencer held;
  const Completion producer = held.submit(0, {});
  CHECK(held.waits(1, {read(held.a)}, {producer}) == 1);
  CHECK(held.waits(0, {read(held.a)}, {producer, Completion()}) == 0);
  held.release_and_drain();
  CHECK(held.waits(2, {read(held.a)}, {producer}) == 0);
}

TEST_CASE("What has finished is not waited for", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  static_cast<void>(held.submit(0, {write(held.a)}));
  CHECK(held.a.may_be_in_flight());
  held.release_and_drain();
  CHECK(held.state.sequencer().has_drained(held.a));
  CHECK(!held.a.may_be_in_flight());
  CHECK(held.waits(1, {write(held.a)}) == 0);
}

TEST_CASE("Conflicting submissions on different lanes run in the order of their submission",
          "[runtime][sequencer][T28][host-only]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  HeldSequencer held({.shuffled = true, .seed = seed});
  std::vector<Completion> done;
  for (std::size_t i = 0; i < 3; ++i) done.push_back(held.submit(i, {write(held.a)}));
  std::size_t finished = 0;
  while (held.host->step() == 1) {
    while (finished < 3 && done[finished].is_done()) ++finished;
    for (std::size_t later = finished; later < 3; ++later) CHECK(!done[later].is_done());
  }
  CHECK(finished == 3);
}

TEST_CASE("A writer runs behind both readers though they finish out of order", "[runtime][sequencer][T29][host-only]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  HeldSequencer held({.shuffled = true, .seed = seed});
  const Completion first = held.submit(0, {read(held.a)});
  const Completion second = held.submit(1, {read(held.a)});
  const std::uint64_t before = held.device->count(Verb::wait_event);
  const Completion writer = held.submit(2, {write(held.a)});
  CHECK(held.device->count(Verb::wait_event) == before + 2);
  while (held.host->step() == 1) {
    if (writer.is_done()) CHECK((first.is_done() && second.is_done()));
  }
  CHECK(writer.is_done());
  CHECK(held.state.sequencer().has_drained(held.a));
}

TEST_CASE("A submission that fails enters nothing", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  const std::array uses{write(held.a)};
  const SubmissionPtr submission(new Submission(held.state, held.lanes[0]->lane));
  const auto fail = [] { throw Error(ErrorCode::failed, "It fails."); };
  CHECK_THROWS_AS(held.state.sequencer().submit(submission, held.lanes[0]->lane, {.uses = uses, .producers = {}}, fail,
                                                [] { return std::function<void()>(); }),
                  Error);
  CHECK(!held.a.may_be_in_flight());
  CHECK(held.waits(1, {write(held.a)}) == 0);
}

TEST_CASE("A log stays short however often a lane uses the same bytes", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  for (int i = 0; i < 100; ++i) static_cast<void>(held.submit(0, {write(held.a)}));
  CHECK(held.state.sequencer().runs(held.a).size() == 1);
}

TEST_CASE("The last run of a lane stands for those before it", "[runtime][sequencer][host-only]") {
  HeldSequencer held;
  const Completion first = held.submit(0, {write(held.a)});
  const Completion second = held.submit(0, {write(held.a)});
  while (!first.is_done()) REQUIRE(held.host->step() == 1);
  REQUIRE(!second.is_done());
  CHECK(!held.state.sequencer().has_drained(held.a));
  CHECK(held.waits(1, {read(held.a)}) == 1);
}

TEST_CASE("The host maps memory once what conflicts is done", "[runtime][sequencer][R3][host-only]") {
  HeldSequencer held;
  Sequencer& sequencer = held.state.sequencer();
  static_cast<void>(held.submit(0, {read(held.a)}));
  CHECK(sequencer.map(held.a, Access::write) == Sequencer::Mapping::device_busy);
  CHECK(!sequencer.wait(held.a, Access::write, past()));
  CHECK(sequencer.wait(held.a, Access::read, past()));
  CHECK(sequencer.map(held.a, Access::read) == Sequencer::Mapping::granted);
  CHECK(sequencer.map(held.a, Access::write) == Sequencer::Mapping::host_busy);
  sequencer.unmap(held.a, Access::read);
  held.host->release();
  CHECK(sequencer.wait(held.a, Access::write, in_a_minute()));
  CHECK(sequencer.map(held.a, Access::write) == Sequencer::Mapping::granted);
  CHECK(sequencer.map_when_done(held.a) == Sequencer::Mapping::host_busy);
  sequencer.unmap(held.a, Access::write);
  CHECK(sequencer.map_when_done(held.a) == Sequencer::Mapping::granted);
  CHECK(refusal([&] { static_cast<void>(held.submit(0, {write(held.a)})); }).code() == ErrorCode::busy);
  sequencer.unmap(held.a, Access::read);
}

TEST_CASE("What waits for the host keeps its place and gives it up when it is dropped",
          "[runtime][sequencer][R13][R14][host-only]") {
  HeldSequencer held;
  CompletionSource source(held.context, "gate");
  const Completion gated = held.submit(0, {write(held.a, 0, 50)}, {source.completion()});
  CHECK(held.a.may_be_in_flight());
  CHECK(!held.state.sequencer().has_drained(held.a));
  CHECK(held.state.sequencer().runs(held.a).size() == 1);
  const Completion behind = held.submit(1, {read(held.a, 49, 60)});
  const Completion behind_that = held.submit(2, {write(held.a, 55, 56)});
  const Completion apart = held.submit(3, {read(held.a, 60, 100)});
  CHECK(apart.profile().launched.has_value());
  for (const Completion& each : {gated, behind, behind_that}) CHECK(!each.profile().launched.has_value());
  CHECK(!held.state.sequencer().wait(held.a, Access::write, past()));
  SECTION("It is launched and all others in their order") {
    CHECK(source.complete());
    held.host->release();
    CHECK(behind_that.wait(in_a_minute()));
    CHECK(behind.poll() == CompletionStatus::done);
    CHECK(gated.poll() == CompletionStatus::done);
  }
  SECTION("It is cancelled and the others go on") {
    CHECK(gated.cancel());
    held.host->release();
    CHECK(behind_that.wait(in_a_minute()));
    CHECK(behind.poll() == CompletionStatus::done);
    CHECK(gated.poll() == CompletionStatus::cancelled);
    CHECK(source.complete());
  }
  SECTION("One behind it is cancelled and the next still waits for the first") {
    const Completion last = held.submit(3, {write(held.a, 40, 60)});
    CHECK(behind.cancel());
    CHECK(eventually([&] { return behind_that.profile().launched.has_value(); }));
    CHECK(!last.profile().launched.has_value());
    CHECK(source.complete());
    held.host->release();
    CHECK(last.wait(in_a_minute()));
    CHECK(gated.poll() == CompletionStatus::done);
  }
  CHECK(held.state.sequencer().wait(held.a, Access::write, in_a_minute()));
  CHECK(eventually([&] { return held.state.sequencer().has_drained(held.a); }));
}

TEST_CASE("One look settles a whole chain behind what the host decides", "[runtime][sequencer][R14][host-only]") {
  HeldSequencer held;
  Sequencer& sequencer = held.state.sequencer();
  CompletionSource source(held.context, "gate");
  std::vector<Completion> chain{source.completion()};
  std::vector<int> launched;
  const auto submit = [&](int number, const std::vector<TrackedUse>& uses, const std::vector<Completion>& after) {
    const TransferLane& lane = *held.lanes[static_cast<std::size_t>(number) % held.lanes.size()];
    const SubmissionPtr submission(new Submission(held.state, lane.lane));
    const auto launch = [&launched, &held, &lane, number] {
      check(held.state.api().launch(lane.complete.get(), lane.stream()), "launch");
      launched.push_back(number);
    };
    sequencer.submit(submission, lane.lane, {.uses = uses, .producers = after}, launch,
                     [&] { return std::function<void()>(launch); });
    chain.push_back(CompletionAccess::make(submission));
  };
  for (int i = 0; i < 6; i += 2) {
    submit(i, {write(held.a)}, {chain.back()});  // Behind the work before it,
    submit(i + 1, {read(held.a)}, {});           // and behind its bytes.
  }
  CHECK(sequencer.advance());
  CHECK(launched.empty());
  SECTION("It is complete") {
    CHECK(source.complete());
    CHECK(!sequencer.advance());
    CHECK(launched == std::vector<int>{0, 1, 2, 3, 4, 5});
    for (const Completion& each : chain) CHECK(!each.error().has_value());
  }
  SECTION("It fails and so do those that follow it but not those that touch the same bytes") {
    CHECK(source.fail(nullptr));
    CHECK(!sequencer.advance());
    CHECK(launched == std::vector<int>{1, 2, 3, 4, 5});
    CHECK(chain[1].poll() == CompletionStatus::failed);
  }
  held.host->release();
  CHECK(sequencer.wait(held.a, Access::write, in_a_minute()));
}

TEST_CASE("What has to wait for the host is held whole or refused whole where memory runs out",
          "[runtime][sequencer][R14]") {
  const Context context = open_context();
  ContextState& state = *ContextAccess::state(context);
  TrackedMemory memory(state, "a", 0, nullptr, kBytes);
  const TransferLane& lane = state.transfers().lane();
  std::uint64_t n = 0;
  bool is_refused = true;
  while (is_refused) {
    ++n;
    INFO("allocation " << n);
    CompletionSource source(context, "gate");
    const std::array uses{write(memory)};
    const std::array producers{source.completion()};
    Completion gated;
    is_refused = false;
    call_count.failing_new = n;
    try {
      gated = state.transfers().submit(lane, {.uses = uses, .producers = producers}, {});
    } catch (const std::bad_alloc&) {
      is_refused = true;
    }
    call_count.failing_new = 0;
    CHECK(state.sequencer().has_drained(memory) == is_refused);
    CHECK(gated.is_done() == is_refused);
    CHECK(source.complete());
    CHECK(gated.wait(in_a_minute()));
    CHECK(state.sequencer().wait(memory, Access::write, in_a_minute()));
  }
  CHECK(n > 3);
}

}  // namespace weft::test
