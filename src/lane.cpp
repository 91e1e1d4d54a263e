#include "lane.h"

#include "backoff.h"
#include "error_context.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

Lane::Lane(const std::shared_ptr<DeviceApi>& api, std::shared_ptr<const PinnedBuffer> page, std::byte* word,
           std::string name, std::chrono::nanoseconds spin)
    : api_(*api),
      stream_(create_stream(api)),
      event_(create_event(api)),
      page_(std::move(page)),
      word_(reinterpret_cast<std::uint64_t*>(word)),
      name_(std::move(name)),
      spin_(spin) {}

bool Lane::wait(std::uint64_t run, Deadline deadline) const {
  if (has_finished(run)) return true;
  Backoff backoff(spin_, deadline);
  while (backoff.pause()) {
    if (has_finished(run)) return true;
    if (backoff.is_time_to_ask()) require_progress(run);
  }
  require_progress(run);  // Who only polls learns of a lost device here.
  return has_finished(run);
}

void Lane::require_progress(std::uint64_t run) const {
  const DeviceStatus status = api_.query_stream(stream_.get());
  if (status.code == StatusCode::not_ready) return;
  in_context([&] { return describe(); },
             [&] {
               check(status, fmt::format("finish run {}", run));
               if (!has_finished(run)) {
                 throw Error(ErrorCode::internal,
                             fmt::format("The stream drained, but its run {} did not report completion.", run));
               }
             });
}

// The event is recorded again for every follower: what it then stands for is later, and never less. Two threads that do
// so at once may each wait for the other's record, which is as good as their own.
DeviceStatus Lane::precede(StreamHandle later) const noexcept {
  const DeviceStatus recorded = api_.record_event(event_.get(), stream_.get());
  return recorded.ok() ? api_.wait_event(later, event_.get()) : recorded;
}

}  // namespace weft
