#include "catch.h"
#include "context_state.h"
#include "device/device_decorator.h"
#include "device_tensor_access.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

// Copies behave as if they ran one after the other in the order of the calls, whatever the device makes of it.

namespace weft::test {
namespace {

constexpr std::size_t kTensors = 4;
constexpr std::uint64_t kBytes = 64;
constexpr int kCopies = 60;

/// Random copies between parts of a few tensors, and what they must come to.
struct CopyProgram {
  struct Copy {
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t source = 0;
    std::uint64_t destination = 0;
    std::uint64_t bytes = 0;
  };

  explicit CopyProgram(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    for (std::size_t i = 0; i < kTensors; ++i) start.push_back(fresh_bytes(kBytes, seed * kTensors + i));
    end = start;
    for (int i = 0; i < kCopies; ++i) {
      Copy copy{.from = below(kTensors), .to = below(kTensors), .bytes = 1 + below(kBytes / 2)};
      if (copy.from == copy.to) copy.to = (copy.to + 1) % kTensors;
      copy.source = below(kBytes - copy.bytes + 1);
      copy.destination = below(kBytes - copy.bytes + 1);
      std::copy_n(end[copy.from].begin() + static_cast<std::ptrdiff_t>(copy.source), copy.bytes,
                  end[copy.to].begin() + static_cast<std::ptrdiff_t>(copy.destination));
      copies.push_back(copy);
    }
  }

  [[nodiscard]] std::vector<std::vector<std::uint8_t>> run(const Context& context, bool device_only = false) const {
    std::vector<DeviceTensor> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) {
      const Placement placement = device_only || i % 2 == 0 ? Placement::device : Placement::shared;
      tensors.push_back(context.tensor(bytes_desc(kBytes), {.label = "t", .placement = placement}));
      static_cast<void>(upload(context, start[i]).copy_into(tensors[i]));
    }
    for (const Copy& copy : copies) {
      static_cast<void>(
          tensors[copy.from].view(bytes_desc(copy.bytes), copy.source).copy_into(tensors[copy.to], copy.destination));
    }
    std::vector<std::vector<std::uint8_t>> result;
    for (const DeviceTensor& tensor : tensors) result.push_back(values(tensor));
    return result;
  }

  std::vector<std::vector<std::uint8_t>> start;
  std::vector<std::vector<std::uint8_t>> end;
  std::vector<Copy> copies;
};

/// Leaves out waits of one stream for another.
class UnorderedDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus wait_event(StreamHandle, EventHandle) noexcept override { return {}; }
};

/// The program's answer on a shuffled host device, all of it queued before anything runs.
std::vector<std::vector<std::uint8_t>> run_shuffled(const CopyProgram& program, std::uint64_t seed, bool unordered) {
  const std::shared_ptr<HostDevice> host = make_host_device({.shuffled = true, .seed = seed});
  std::shared_ptr<DeviceApi> device = host;
  if (unordered) device = std::make_shared<UnorderedDevice>(host);
  const ScopedDevice scoped(Device::host(), device);
  // Without order the host would read what a copy still writes.
  return program.run(Context::open(Device::host()), unordered);
}

}  // namespace

TEST_CASE("Random copies come to what they come to one by one", "[runtime][order]") {
  const Context context = open_context();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const CopyProgram program(seed);
    CHECK(program.run(context) == program.end);
  }
}

TEST_CASE("Random copies come to the same in every legal order", "[runtime][order][host-only]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    const CopyProgram program(seed);
    CHECK(run_shuffled(program, seed, false) == program.end);
  }
}

TEST_CASE("A copy whose wait for another stream is missing is found by some order", "[runtime][order][host-only]") {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const CopyProgram program(seed);
    if (run_shuffled(program, seed, true) != program.end) ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("A copy waits for the upload that it reads", "[runtime][order][R37][host-only]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  HeldContext held(seed);
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  held.device->hold();
  const DeviceTensor from = upload(held.context, source);
  const DeviceTensor to = held.context.tensor(bytes_desc(64));
  const DeviceTensor copy = from.copy_into(to);
  CHECK(!copy.wait(past()));
  while (held.device->step() == 1) {
    if (copy.completion().is_done()) CHECK((from.completion().is_done() && to.completion().is_done()));
  }
  CHECK(copy.completion().is_done());
  held.device->release();
  CHECK(values(to) == source);
}

TEST_CASE("Work waits for a tensor's completion though no use of its memory is in flight",
          "[runtime][order][R12][R37][host-only]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  HeldContext held(seed);
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const DeviceTensor tensor = upload(held.context, source);
  const DeviceTensor to = held.context.tensor(bytes_desc(64));
  held.device->drain();
  REQUIRE(tensor.completion().is_done());
  REQUIRE(to.completion().is_done());
  held.device->hold();
  Transfers& transfers = ContextAccess::state(held.context)->transfers();
  const Completion producer = transfers.submit(transfers.lane(), SubmissionOrder{}, {});
  const DeviceTensor late =
      DeviceTensorAccess::in_memory(tensor.desc(), DeviceTensorAccess::memory(tensor), 0, producer);
  const DeviceTensor late_to = DeviceTensorAccess::in_memory(to.desc(), DeviceTensorAccess::memory(to), 0, producer);
  // One after the other takes the next lane; the producer's own is not among them.
  const std::vector<Completion> consumers{held.context.concatenate({late, late}).completion(),
                                          late.copy_into(to).completion(), tensor.copy_into(late_to).completion()};
  Readback readback = late.download();
  while (!producer.is_done()) {
    for (const Completion& consumer : consumers) CHECK(!consumer.is_done());
    CHECK(!readback.wait(past()));
    REQUIRE(held.device->step() == 1);
  }
  held.device->release();
  for (const Completion& consumer : consumers) CHECK(consumer.wait(in_a_minute()));
  CHECK(readback.wait(in_a_minute()));
}

TEST_CASE("A writer waits for two readers and each reader for the writer before", "[runtime][order][host-only]") {
  const std::uint64_t seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{21}));
  INFO("seed " << seed);
  HeldContext held(seed);
  const std::vector<std::uint8_t> old_bytes = fresh_bytes(64, 1);
  const std::vector<std::uint8_t> new_bytes = fresh_bytes(64, 2);
  const DeviceTensor tensor = upload(held.context, old_bytes);
  const DeviceTensor next = upload(held.context, new_bytes);
  const DeviceTensor one = held.context.tensor(bytes_desc(64));
  const DeviceTensor two = held.context.tensor(bytes_desc(64));
  const DeviceTensor three = held.context.tensor(bytes_desc(64));
  held.device->drain();
  held.device->hold();
  static_cast<void>(tensor.copy_into(one));
  static_cast<void>(tensor.copy_into(two));
  static_cast<void>(next.copy_into(tensor));
  static_cast<void>(tensor.copy_into(three));
  held.device->release();
  CHECK(values(one) == old_bytes);
  CHECK(values(two) == old_bytes);
  CHECK(values(tensor) == new_bytes);
  CHECK(values(three) == new_bytes);
}

}  // namespace weft::test
