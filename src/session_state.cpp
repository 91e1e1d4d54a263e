#include "session_state.h"

#include "device/process_state.h"
#include "device/registry.h"
#include "error_context.h"
#include "foreign_memory.h"
#include "reclaim.h"
#include "refusal.h"
#include "unique_id.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

namespace weft {

namespace {

/// Sessions that are gone but for the work that they left queued. A session has no context that would keep it.
class Leftovers final : public Reclaimer {
 public:
  void add(std::list<std::shared_ptr<SessionState>> place) noexcept {
    const std::lock_guard lock(mutex_);
    sessions_.splice(sessions_.end(), place);
  }

  void reap() noexcept override {
    if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
    std::list<std::shared_ptr<SessionState>> drained;      // Destroyed outside the lock: they free memory and code.
    const std::lock_guard lock(mutex_);
    for (auto next = sessions_.begin(); next != sessions_.end();) {
      const auto candidate = next++;
      if ((*candidate)->has_drained()) drained.splice(drained.end(), sessions_, candidate);
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<SessionState>> sessions_;  // Guarded by mutex_.
};

Leftovers& leftovers() {
  // Never destroyed: what still runs at exit ends with the process.
  static const auto* const instance = [] {
    auto* const made = new std::shared_ptr<Leftovers>(std::make_shared<Leftovers>());
    add_reclaimer(*made);
    return made;
  }();
  return **instance;
}

void require_allocation(const std::string& label, std::uint64_t bytes, Placement placement) {
  if (bytes == 0 || bytes > std::numeric_limits<std::int64_t>::max()) {
    refuse(fmt::format("The allocation \"{}\" has {} bytes; an allocation has 1 to {}.", label, bytes,
                       std::numeric_limits<std::int64_t>::max()));
  }
  require_enumerator(fmt::format("placement of the allocation \"{}\"", label), placement, Placement::shared);
}

}  // namespace

SessionState::SessionState(Device device, SessionOptions options)
    : id_(next_unique_id()),
      device_(device),
      domain_(std::make_shared<AllocationDomain>(open_device(device), Allocator{}, std::move(options.budget))),
      staging_(domain_),
      place_(1) {
  leftovers().reap();
}

void SessionState::release(std::shared_ptr<SessionState> session) noexcept {
  if (session != nullptr && !session->has_drained()) {
    std::list<std::shared_ptr<SessionState>> place = std::move(session->place_);
    place.front() = std::move(session);
    leftovers().add(std::move(place));
  }
  leftovers().reap();
}

bool SessionState::has_drained() const noexcept {
  const StatusCode code = api().query_stream(stream()).code;
  return code == StatusCode::ok || code == StatusCode::device_lost;
}

void SessionState::require_healthy() const {
  check(domain_->api()->health(), "work for a session");
  if (failure_) throw Error(ErrorCode::failed, "The session failed earlier: " + *failure_);
}

ValidationScope SessionState::scope() const noexcept {
  const HandleOwner owner{id_, "session", "this is session"};
  return {owner, allocations_, owner, kernels_, api().limits(), true, late_scalars_};
}

Region SessionState::add(Allocation allocation) {
  if (allocations_.size() >= std::numeric_limits<std::uint32_t>::max()) {
    refuse(fmt::format("The session has {} allocations, which is the most it can have.", allocations_.size()));
  }
  const Region region{id_, static_cast<std::uint32_t>(allocations_.size()), 0, allocation.bytes};
  memory_.emplace_back();
  allocations_.push_back(std::move(allocation));
  return region;
}

Region SessionState::add_scratch(std::string label, std::uint64_t bytes, Placement placement) {
  require_allocation(label, bytes, placement);
  return add({std::move(label), bytes, placement, nullptr});
}

Region SessionState::add_state(std::string label, std::uint64_t bytes, Placement placement) {
  require_allocation(label, bytes, placement);
  Allocation allocation{std::move(label), bytes, placement, nullptr};
  PlacedMemory memory = allocate_zeroed(allocation);
  const Region region = add(std::move(allocation));
  memory_[region.allocation] = std::move(memory);
  states_.push_back(region.allocation);
  return region;
}

Region SessionState::add_weight(std::string label, std::span<const std::byte> bytes) {
  auto weight = std::make_shared<Weight>(domain_, bytes.size(), label);
  staging_.reserve(bytes.size());
  copy_in(weight->address(), bytes);
  weights_.push_back(weight);
  return add({std::move(label), bytes.size(), Placement::device, std::move(weight)});
}

Region SessionState::add_weight(std::string label, AdoptedMemory memory, std::uint64_t bytes) {
  const auto address = reinterpret_cast<DeviceAddress>(memory.address);
  require_device_range(api(), address, bytes);
  auto weight = std::make_shared<Weight>(domain_, address, bytes);
  weights_.push_back(weight);
  const Region region = add({std::move(label), bytes, Placement::device, weight});
  weight->on_release(std::move(memory.release));  // Last: on an error the memory stays the caller's.
  return region;
}

LateScalarId SessionState::add_late(std::string label, std::size_t bytes, std::optional<Scalar> value) {
  if (late_scalars_.size() >= std::numeric_limits<std::uint32_t>::max()) {
    refuse(fmt::format("The session has {} late scalars, which is the most it can have.", late_scalars_.size()));
  }
  const LateScalarId id{id_, static_cast<std::uint32_t>(late_scalars_.size())};
  late_scalars_.push_back(std::make_shared<const LateScalarDeclaration>(LateScalarDeclaration{
      id, std::move(label), value ? std::move(value->bytes) : std::vector<std::byte>(bytes), value.has_value()}));
  return id;
}

Region SessionState::add_late_region(std::string label, std::uint64_t bytes, std::optional<TensorDesc> desc) {
  require_allocation(label, bytes, Placement::device);
  const Region region = add({.label = label, .bytes = bytes});
  allocations_[region.allocation].late =
      std::make_shared<const LateRegionDeclaration>(LateRegionDeclaration{region, std::move(label), std::move(desc)});
  return region;
}

LoadedModule SessionState::find_module(const KernelSpec& spec) const noexcept {
  const CodeImage& image = spec.image;
  const auto found = std::ranges::find_if(images_, [&](const LoadedImage& loaded) {
    // The label counts too: without CUDA every image has the same bytes, none.
    return loaded.label == image.label && loaded.function == image.native.function &&
           std::ranges::equal(loaded.bytes, image.bytes) && loaded.globals == spec.globals;
  });
  return found == images_.end() ? nullptr : found->module;
}

void SessionState::set_globals(const LoadedModule& module, const KernelSpec& spec) {
  const std::vector<DeviceAddress> addresses = find_globals(module, spec);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] == 0) continue;  // The host device has no code to set it in.
    staging_.reserve(spec.globals[i].bytes.size());
    copy_in(addresses[i], spec.globals[i].bytes);
  }
}

KernelId SessionState::load(const KernelSpec& spec) {
  const CodeImage& image = spec.image;
  LoadedModule module = find_module(spec);
  const bool is_new = module == nullptr;
  if (is_new) module = load_module(domain_->api(), image);
  std::shared_ptr<const LoadedKernel> kernel = load_kernel(api(), module, spec);
  if (is_new) {
    images_.push_back(
        {image.label, {image.bytes.begin(), image.bytes.end()}, image.native.function, spec.globals, module});
    try {
      set_globals(module, spec);
    } catch (...) {
      static_cast<void>(api().synchronize_stream(stream()));  // Copies to the module's variables may be queued.
      images_.pop_back();
      throw;
    }
  }
  kernels_.push_back(std::move(kernel));
  return {id_, static_cast<std::uint32_t>(kernels_.size() - 1)};
}

}  // namespace weft
