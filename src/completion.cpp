#include "lane.h"
#include <weft/completion.h>

#include <utility>

namespace weft {

Completion::Completion(std::shared_ptr<const Lane> lane, std::uint64_t run) noexcept
    : lane_(std::move(lane)), run_(run) {}

bool Completion::is_done() const noexcept { return lane_ == nullptr || lane_->has_finished(run_); }

bool Completion::wait(Deadline deadline) const { return lane_ == nullptr || lane_->wait(run_, deadline); }

}  // namespace weft
