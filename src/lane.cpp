#include "lane.h"

#include "error_context.h"
#include "logging.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <exception>
#include <thread>
#include <utility>

namespace weft {

namespace {

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

Lane::Lane(const std::shared_ptr<DeviceApi>& api, std::shared_ptr<const PinnedBuffer> page, std::byte* word,
           LaneOptions options)
    : api_(*api),
      stream_(create_stream(api)),
      event_(create_event(api)),
      page_(std::move(page)),
      word_(reinterpret_cast<std::uint64_t*>(word)),
      options_(std::move(options)) {}

void Lane::require_progress(std::uint64_t run) const {
  const DeviceStatus status = api_.query_stream(stream_.get());
  if (status.code == StatusCode::not_ready) {
    if (!options_.hang_after || has_finished(run)) return;
    const Clock::duration running{Clock::now().time_since_epoch().count() - launched_at()};
    if (running <= *options_.hang_after) return;
    if (!has_hung_.exchange(true, std::memory_order_relaxed)) {
      weft::log(LogLevel::error, options_.name, [&] {
        return fmt::format("Run {} of {} has not finished for {:.3f} s: it hangs, and its slot is not used again.", run,
                           options_.name, seconds(running));
      });
    }
    in_context([&] { return describe(); },
               [&] {
                 throw Error(
                     ErrorCode::failed,
                     fmt::format("Run {} has not finished for {:.3f} s, and hang_after is {:.3f} s; its slot is "
                                 "not used again.",
                                 run, seconds(running), seconds(*options_.hang_after)));
               });
  }
  in_context([&] { return describe(); },
             [&] {
               check(status, fmt::format("finish run {}", run));
               if (!has_finished(run)) {
                 throw Error(ErrorCode::internal,
                             fmt::format("The stream drained, but its run {} did not report completion.", run));
               }
             });
}

void Lane::wait_or_hang() const noexcept {
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  if (!options_.hang_after) return;
  try {
    for (; !has_drained(); std::this_thread::sleep_for(kBetweenLooks)) require_progress(launched());
  } catch (const std::exception&) {
    // It hangs, or the device is lost.
  }
}

// The event is recorded again for every follower: what it then stands for is later, and never less. Two threads that do
// so at once may each wait for the other's record, which is as good as their own.
DeviceStatus Lane::precede(StreamHandle later) const noexcept {
  const DeviceStatus recorded = api_.record_event(event_.get(), stream_.get());
  return recorded.ok() ? api_.wait_event(later, event_.get()) : recorded;
}

}  // namespace weft
