#include "context_state.h"
#include "error_context.h"
#include "miss_log.h"
#include "prepared_access.h"
#include "refusal.h"
#include "unit_store.h"
#include <weft/budget.h>
#include <weft/plan_cache.h>

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <utility>

namespace weft {

namespace {

class PlanUnit final : public detail::Unit {
 public:
  explicit PlanUnit(PreparedModel model) noexcept : Unit(typeid(PreparedModel)), model_(std::move(model)) {}

  [[nodiscard]] bool is_idle() const override { return model_.is_idle(); }
  [[nodiscard]] bool is_shared() const noexcept override { return PreparedAccess::is_shared(model_); }
  [[nodiscard]] const PreparedModel& model() const noexcept { return model_; }

 private:
  PreparedModel model_;
};

UnitStore::Key key_of(const PlanKey& key) { return {key.content(), fmt::format("plan \"{}\"", key.label())}; }

std::size_t require_plans(std::size_t plans) {
  if (plans == 0) refuse("A plan cache has room for at least 1 plan; 0 are asked for.");
  return plans;
}

std::uint64_t require_bytes(std::uint64_t bytes) {
  if (bytes == 0) refuse("A plan cache has room for at least 1 byte; 0 are asked for.");
  return bytes;
}

}  // namespace

struct PlanCacheState final {
  explicit PlanCacheState(const PlanCacheOptions& options)
      : log(std::make_shared<MissLog>(options.kept_misses)),
        room(require_bytes(options.max_bytes)),
        store(std::make_shared<UnitStore>(
            require_plans(options.max_plans),
            [log = log](const std::string& content, UnitEnd end) { log->ended(content, end); })) {
    add_evictor(store);
  }

  [[nodiscard]] bool is_bounded() const noexcept {
    return room.ceiling_bytes() < std::numeric_limits<std::uint64_t>::max();
  }

  /// A unit of a plan; `bytes` of it are reserved before, where they are known.
  [[nodiscard]] std::shared_ptr<detail::Unit> make(const PlanCache::Loader& loader, MemoryReservation bytes) const {
    const auto unit = std::make_shared<PlanUnit>(loader());
    const std::uint64_t taken = unit->model().memory_bytes();
    if (taken > bytes.bytes()) bytes.merge(reserve(taken - bytes.bytes()));
    unit->hold(bytes.split(taken));
    std::vector<MemoryBudget> budgets{room};
    const auto& budget = ContextAccess::state(unit->model().context())->domain()->budget();
    if (budget) budgets.push_back(*budget);
    unit->charge_to(std::move(budgets));
    return unit;
  }
  [[nodiscard]] MemoryReservation reserve(std::uint64_t bytes) const {
    return in_context([] { return "making room in a plan cache"; }, [&] { return room.reserve(bytes); });
  }

  const std::shared_ptr<MissLog> log;  // The store's, too, which who evicts may keep a moment longer.
  const MemoryBudget room;
  const std::shared_ptr<UnitStore> store;
};

namespace {

const PreparedModel& model_of(const std::shared_ptr<detail::Unit>& unit) noexcept {
  return static_cast<const PlanUnit&>(*unit).model();
}

void require_loader(const PlanCache::Loader& loader) {
  if (!loader) refuse("The loader of a plan is empty.");
}

std::optional<PreparedModel> get_plan(const PlanCacheState& state, const PlanKey& key, const UnitStore::Maker& make,
                                      Deadline deadline) {
  const auto logged = [&] {
    state.log->miss(key, false);
    std::shared_ptr<detail::Unit> unit = make();
    state.log->loaded(key);
    return unit;
  };
  const std::shared_ptr<detail::Unit> unit = state.store->get(key_of(key), typeid(PreparedModel), logged, deadline);
  if (unit == nullptr) return {};
  return model_of(unit);
}

}  // namespace

std::string_view to_string(MissReason reason) noexcept {
  switch (reason) {
    case MissReason::first:
      return "first";
    case MissReason::evicted:
      return "evicted";
    case MissReason::replaced:
      return "replaced";
    case MissReason::failed:
      return "failed";
  }
  return "none";
}

PlanCache::PlanCache(PlanCacheOptions options) : state_(std::make_shared<PlanCacheState>(options)) {}

PlanCache::~PlanCache() { state_->store->clear(); }

std::optional<PreparedModel> PlanCache::get(const ModelFragment& fragment, const PrepareOptions& options,
                                            Deadline deadline) {
  const auto make = [&] {
    // Room first: then the bytes are never more than the cache takes.
    MemoryReservation bytes;
    if (state_->is_bounded()) bytes = state_->reserve(fragment.required_bytes(options));
    return state_->make([&] { return fragment.prepare(options); }, std::move(bytes));
  };
  return get_plan(*state_, PlanKey::of(fragment, options), make, deadline);
}

std::optional<PreparedModel> PlanCache::get(const PlanKey& key, const Loader& loader, Deadline deadline) {
  require_loader(loader);
  return get_plan(
      *state_, key, [&] { return state_->make(loader, {}); }, deadline);
}

PreparedModel PlanCache::replace(const PlanKey& key, const Loader& loader) {
  require_loader(loader);
  const auto make = [&] {
    state_->log->miss(key, true);
    std::shared_ptr<detail::Unit> unit = state_->make(loader, {});
    state_->log->loaded(key);
    return unit;
  };
  return model_of(state_->store->replace(key_of(key), typeid(PreparedModel), make));
}

bool PlanCache::evict(const PlanKey& key) { return state_->store->evict(key_of(key)); }
bool PlanCache::forget(const PlanKey& key) { return state_->store->forget(key_of(key)); }
bool PlanCache::pin(const PlanKey& key) { return state_->store->pin(key_of(key)); }
void PlanCache::unpin(const PlanKey& key) { state_->store->unpin(key_of(key)); }

PlanCacheStatistics PlanCache::statistics() const {
  const UnitCounters counters = state_->store->counters();
  return {.plans = counters.units,
          .bytes = counters.bytes,
          .hits = counters.hits,
          .misses = counters.misses,
          .misses_by_reason = state_->log->counters(),
          .evictions = counters.evictions,
          .failed = counters.failed};
}

std::vector<PlanMiss> PlanCache::recent_misses() const { return state_->log->recent(); }

}  // namespace weft
