#include "serving/server.h"

#include "serving/frontend.h"
#include <weft/weft.h>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace weft::serving {

namespace {

void report(const Context& context, const BatcherCounters& requests) {
  const ContextStatistics statistics = context.statistics();
  fmt::print("answered {}  shed {}  late {}  failed {}\n", requests.answered, requests.shed, requests.late,
             requests.failed);
  fmt::print("batches {}  slots {}  device bytes {}  staging bytes {}\n", requests.batches, statistics.slots.slots,
             statistics.memory.reserved.live_bytes, statistics.memory.staging.live_bytes);
}

}  // namespace

int serve(const Device& device, const ServerOptions& options) {
  block_signals();  // Before the first thread: all inherit it, and the frontend alone takes them.
  const Context context = Context::open(device);
  const Safetensors file = Safetensors::open(options.data / "digits.safetensors");
  std::vector<std::uint32_t> batches = options.batches;
  std::ranges::sort(batches);
  // Without `hang_after` a kernel that never ends would hold its slot, and the end of the server, for ever.
  std::vector<Bucket> buckets =
      prepare_buckets(context, file, batches, {.slots = options.slots, .hang_after = options.hang_after});
  const auto pixels = static_cast<std::uint32_t>(file.tensor("fc1.weight").desc.shape()[1]);

  Frontend frontend(options.port, pixels);
  Batcher batcher(std::move(buckets), options.batching);
  fmt::print("listening 127.0.0.1:{}\n", frontend.port());
  std::fflush(stdout);

  frontend.serve([&](Request request) { batcher.submit(std::move(request)); });
  spdlog::info("A signal came: no more requests are taken.");
  batcher.drain();
  if (!frontend.close(Clock::now() + std::chrono::seconds(1))) spdlog::warn("Some clients do not hang up.");
  report(context, batcher.counters());
  return 0;
}

}  // namespace weft::serving
