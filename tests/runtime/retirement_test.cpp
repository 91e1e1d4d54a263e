#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include <weft/error.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// What becomes of memory whose handles go while work is in flight on it.

namespace weft::test {

TEST_CASE("A buffer that was only zeroed goes as soon as it is dropped", "[runtime][retirement][B2][B3]") {
  const Context context = open_context();
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::optional<Buffer> buffer = context.allocate(4096, {.label = "b"});
    REQUIRE(buffer->tensor(bytes_desc(1)).wait(in_a_minute()));
    buffer.reset();
    CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
  }
}

TEST_CASE("Tensors dropped at once leave their copies whole", "[runtime][retirement][B16]") {
  const Context context = open_context();
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::vector<std::uint8_t> source = fresh_bytes(1000 + round, round);
    const DeviceTensor end = context.tensor(bytes_desc(source.size()));
    {
      const DeviceTensor middle = context.tensor(bytes_desc(source.size()));
      static_cast<void>(upload(context, source).copy_into(middle));
      static_cast<void>(middle.copy_into(end));
    }
    CHECK(values(end) == source);
  }
  CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
}

TEST_CASE("Nothing is freed under the device whichever handle goes first", "[runtime][retirement][B16][host-only]") {
  HeldContext held;
  const std::vector<std::uint8_t> source = fresh_bytes(256, 1);
  for (const Placement placement : {Placement::device, Placement::shared}) {
    for (int which = 0; which < 3; ++which) {
      INFO(to_string(placement) << ", handle " << which);
      held.device->hold();
      {
        std::optional<DeviceTensor> from = upload(held.context, source);
        std::optional<DeviceTensor> to = held.context.tensor(bytes_desc(256), {.label = "to", .placement = placement});
        std::optional<DeviceTensor> copy = from->copy_into(*to);
        std::optional<Readback> readback = copy->download();
        copy.reset();
        if (which == 0) from.reset();
        if (which == 1) to.reset();
        if (which == 2) readback.reset();
        CHECK(held.context.memory().requested.live_bytes == 512);
        while (held.device->step() == 1) static_cast<void>(held.context.memory());
        if (readback) {
          REQUIRE(readback->wait(in_a_minute()));
          CHECK(readback->bytes(0)[7] == std::byte{source[7]});
        }
      }
      held.device->release();
      CHECK(eventually([&] { return held.context.memory().requested.live_bytes == 0; }));
      CHECK(held.device->violations().empty());
    }
  }
}

TEST_CASE("A tensor whose upload has not run is counted until it has", "[runtime][retirement][R33][host-only]") {
  HeldContext held;
  held.device->hold();
  static_cast<void>(upload(held.context, fresh_bytes(100, 1)));
  CHECK(held.context.memory().requested.live_bytes == 100);
  held.device->release();
  CHECK(eventually([&] { return held.context.memory().requested.live_bytes == 0; }));
}

TEST_CASE("Memory goes once its own work is done though its lanes go on", "[runtime][retirement][R33][host-only]") {
  HeldContext held;
  const DeviceTensor a = held.context.tensor(bytes_desc(64));
  const DeviceTensor b = held.context.tensor(bytes_desc(64));
  held.device->drain();
  held.device->hold();
  static_cast<void>(a.copy_into(held.context.tensor(bytes_desc(64))));  // What it wrote is dropped at once.
  for (int i = 0; i < 20; ++i) static_cast<void>(a.copy_into(b));
  CHECK(held.context.memory().requested.live_bytes == 192);
  while (held.context.memory().requested.live_bytes == 192) REQUIRE(held.device->step() == 1);
  CHECK(held.device->step(16) == 16);  // Each lane has two copies to go at least, of two operations each.
  held.device->release();
}

TEST_CASE("No handle waits for work in flight but the last of the context", "[runtime][retirement][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  const std::vector<std::uint8_t> source = fresh_bytes(256, 1);
  {
    const Context context = Context::open(Device::host());
    device->hold();
    {
      const DeviceTensor from = upload(context, source);
      static_cast<void>(from.copy_into(context.tensor(bytes_desc(256))).download());
    }  // Returns while nothing has run.
    CHECK(context.memory().requested.live_bytes == 512);
    device->release();
  }
  device->drain();
  CHECK(device->violations().empty());
  CHECK(device->objects() == HostObjects{});
}

TEST_CASE("A completion outlives its context", "[runtime][retirement][R15]") {
  std::optional<Completion> completion;
  {
    const DeviceTensor tensor = upload(open_context(), fresh_bytes(10'000, 1));
    completion = tensor.completion();
  }
  CHECK(completion->wait(past()));  // The context waited for its work.
  CHECK(completion->is_done());
}

TEST_CASE("A lost device ends waits and lets go of memory in flight", "[runtime][retirement][R15][host-only]") {
  HeldContext held;
  const DeviceTensor from = upload(held.context, fresh_bytes(256, 1));
  REQUIRE(from.wait(in_a_minute()));
  held.device->hold();
  std::optional<DeviceTensor> to = held.context.tensor(bytes_desc(256));
  const Completion copied = from.copy_into(*to).completion();
  to.reset();
  CHECK(held.context.memory().requested.live_bytes == 512);
  held.device->lose();
  const Error error = refusal([&] { static_cast<void>(copied.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::device_lost);
  CHECK(held.context.memory().requested.live_bytes == 256);
  CHECK(refusal([&] { static_cast<void>(upload(held.context, {1})); }).code() == ErrorCode::device_lost);
  held.device->release();
}

TEST_CASE("A forked child is refused before any lock and drops its handles", "[runtime][retirement][fork]") {
  const Context context = open_context();
  const DeviceTensor from = upload(context, fresh_bytes(256, 1));
  const DeviceTensor to = context.tensor(bytes_desc(256));
  const Buffer shared = context.allocate(64, {.label = "s", .placement = Placement::shared});
  std::atomic<bool> stop{false};
  std::thread user([&] {
    while (!stop) static_cast<void>(from.copy_into(to));
  });
  // Some of these forks fall into a lock that the other thread holds.
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const auto is_refused = [](const auto& call) {
        try {
          call();
        } catch (const Error& error) {
          return error.code() == ErrorCode::device_lost;
        }
        return false;
      };
      bool refused = is_refused([&] { static_cast<void>(from.copy_into(to)); });
      refused = is_refused([&] { static_cast<void>(from.download()); }) && refused;
      refused = is_refused([&] { static_cast<void>(upload(context, {1, 2})); }) && refused;
      refused = is_refused([&] { static_cast<void>(context.allocate(8)); }) && refused;
      refused = is_refused([&] { static_cast<void>(shared.map_read(past())); }) && refused;
      { std::optional<Buffer> dropped(shared); }
      std::_Exit(refused ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  stop = true;
  user.join();
  CHECK(values(to) == fresh_bytes(256, 1));
}

}  // namespace weft::test
