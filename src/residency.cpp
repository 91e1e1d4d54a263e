#include "refusal.h"
#include "unit_store.h"
#include <weft/residency.h>

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <utility>

namespace weft {

namespace {

UnitStore::Key key_of(std::string_view key) { return {std::string(key), fmt::format("unit \"{}\"", key)}; }

void require_memory(std::string_view key, const UnitMemory& memory) {
  if (memory.resident_bytes > 0 && memory.resident_bytes <= memory.peak_bytes) return;
  refuse(fmt::format("The unit \"{}\" has {} resident bytes; it has at least 1, and at most its peak of {}.", key,
                     memory.resident_bytes, memory.peak_bytes));
}

}  // namespace

Residency::Residency(MemoryBudget budget)
    : budget_(std::move(budget)), store_(std::make_shared<UnitStore>(std::numeric_limits<std::size_t>::max())) {
  add_evictor(store_);
}

Residency::~Residency() { store_->clear(); }

const MemoryBudget& Residency::budget() const noexcept { return budget_; }

std::shared_ptr<detail::Unit> Residency::load_unit(std::string_view key, const std::type_info& type,
                                                   const UnitMemory* memory, const Maker& make, Deadline deadline) {
  if (memory != nullptr) require_memory(key, *memory);
  const auto make_charged = [&] {
    MemoryReservation peak;
    if (memory != nullptr) peak = budget_.reserve(memory->peak_bytes);
    std::shared_ptr<detail::Unit> unit = make();
    unit->charge_to({budget_});
    if (memory != nullptr) unit->hold(peak.split(memory->resident_bytes));
    return unit;
  };
  return store_->get(key_of(key), type, make_charged, deadline);
}

std::shared_ptr<detail::Unit> Residency::find_unit(std::string_view key, const std::type_info& type) {
  return store_->find(key_of(key), type);
}

bool Residency::evict(std::string_view key) { return store_->evict(key_of(key)); }
bool Residency::pin(std::string_view key) { return store_->pin(key_of(key)); }
void Residency::unpin(std::string_view key) { store_->unpin(key_of(key)); }

ResidencyStatistics Residency::statistics() const {
  const UnitCounters counters = store_->counters();
  return {.units = counters.units,
          .bytes = counters.bytes,
          .hits = counters.hits,
          .misses = counters.misses,
          .evictions = counters.evictions,
          .failed = counters.failed};
}

}  // namespace weft
