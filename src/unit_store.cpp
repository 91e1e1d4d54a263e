#include "unit_store.h"

#include "device/process_state.h"
#include "logging.h"
#include "refusal.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

namespace weft {

struct UnitStore::Entry {
  enum class State : std::uint8_t { loading, ready, failed };

  Entry(const Key& of, const std::type_info& unit_type) : key(of.content), name(of.name), type(&unit_type) {}

  void log_end() const noexcept {
    log(LogLevel::debug, name, [&] { return fmt::format("The {} is evicted.", name); });
  }

  const std::string key;
  const std::string name;
  const std::type_info* const type;
  // All below: guarded by the store's mutex.
  State state = State::loading;
  std::shared_ptr<detail::Unit> unit;  // Set while ready.
  std::uint64_t last_use = 0;
  std::uint32_t pins = 0;
  std::uint32_t waiters = 0;  // For the load; they take the unit before it may go.
  std::uint32_t looking = 0;  // Threads that ask whether it is idle, each with a handle to the unit.
  bool is_being_replaced = false;
  const Entry* waits_for = nullptr;  // What its loader waits for.
  std::optional<Error> error;        // Why the load failed: this, or the next.
  std::exception_ptr other;
  std::condition_variable is_done;
};

/// The loads that are under way on a thread, innermost first.
class UnitStore::Loading {
 public:
  Loading(const UnitStore& store, Entry& entry) noexcept : store_(store), entry_(entry), outer_(innermost_) {
    innermost_ = this;
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
  ~Loading() { innermost_ = outer_; }

  /// Whether this thread loads the key.
  [[nodiscard]] static bool has(const UnitStore& store, const std::string& key) noexcept {
    for (const Loading* each = innermost_; each != nullptr; each = each->outer_) {
      if (&each->store_ == &store && each->entry_.key == key) return true;
    }
    return false;
  }
  /// Notes what all loads of this thread in the store wait for. With the store's lock held.
  static void set_waits_for(const UnitStore& store, const Entry* entry) noexcept {
    for (const Loading* each = innermost_; each != nullptr; each = each->outer_) {
      if (&each->store_ == &store) each->entry_.waits_for = entry;
    }
  }

 private:
  static thread_local const Loading* innermost_;
  const UnitStore& store_;
  Entry& entry_;
  const Loading* outer_;
};

/// An eviction that is under way on a thread. Made and destroyed with the store's lock held, which it lets go of.
class UnitStore::Evicting {
 public:
  explicit Evicting(UnitStore& store) noexcept : store_(store), outer_(innermost_) {
    innermost_ = this;
    ++store_.evicting_;
  }
  Evicting(const Evicting&) = delete;
  Evicting& operator=(const Evicting&) = delete;
  ~Evicting() {
    innermost_ = outer_;
    --store_.evicting_;
    store_.has_evicted_.notify_all();
  }

  /// How many of the store's this thread is in: a predicate or destructor of a unit may do anything.
  [[nodiscard]] static std::uint32_t count(const UnitStore& store) noexcept {
    std::uint32_t count = 0;
    for (const Evicting* each = innermost_; each != nullptr; each = each->outer_) count += &each->store_ == &store;
    return count;
  }

 private:
  static thread_local const Evicting* innermost_;
  UnitStore& store_;
  const Evicting* outer_;
};

namespace {

/// What goes from its entry. Who waits for it still finds it there, and lets it go with the entry.
template <class Entry>
std::shared_ptr<detail::Unit> take_unit(Entry& entry) {
  return entry.waiters > 0 ? entry.unit : std::move(entry.unit);
}

}  // namespace

thread_local const UnitStore::Loading* UnitStore::Loading::innermost_ = nullptr;
thread_local const UnitStore::Evicting* UnitStore::Evicting::innermost_ = nullptr;

UnitStore::EntryPtr UnitStore::find_entry(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second;
}

std::shared_ptr<detail::Unit> UnitStore::use(Entry& entry) {
  entry.last_use = next_use();
  return entry.unit;
}

void UnitStore::require_type(const Key& key, const Entry& entry, const std::type_info& type) const {
  if (*entry.type == type) return;
  refuse(fmt::format("The {} is of another type than it is asked for as.", key.name));
}

// Within one store; a circle over several ends at its deadlines.
void UnitStore::require_no_circle(const Key& key, const Entry& entry) const {
  for (const Entry* next = &entry; next != nullptr; next = next->waits_for) {
    if (Loading::has(*this, next->key)) {
      refuse(fmt::format("The {} is asked for by a loader that it is loaded by or waits for.", key.name));
    }
  }
}

std::shared_ptr<detail::Unit> UnitStore::get(const Key& key, const std::type_info& type, const Maker& make,
                                             Deadline deadline) {
  check(process_status(), "load a unit");  // Before a lock that a thread which is gone may hold.
  Lock lock(mutex_);
  for (;;) {
    const EntryPtr found = find_entry(key.content);
    if (found != nullptr) {
      require_type(key, *found, type);
      if (found->state == Entry::State::loading) return await(lock, key, found, deadline);
      ++counters_.hits;
      return use(*found);
    }
    if (entries_.size() < most_units_) break;
    make_room(lock, key);
  }
  const auto entry = std::make_shared<Entry>(key, type);
  entries_.emplace(key.content, entry);
  return load(lock, key, entry, make);
}

std::shared_ptr<detail::Unit> UnitStore::find(const Key& key, const std::type_info& type) {
  check(process_status(), "find a unit");  // As above.
  const Lock lock(mutex_);
  const EntryPtr entry = find_entry(key.content);
  if (entry == nullptr) return nullptr;
  require_type(key, *entry, type);
  return entry->state == Entry::State::ready ? use(*entry) : nullptr;
}

std::shared_ptr<detail::Unit> UnitStore::replace(const Key& key, const std::type_info& type, const Maker& make) {
  check(process_status(), "load a unit");  // As above.
  Lock lock(mutex_);
  EntryPtr old = find_entry(key.content);
  while (old == nullptr && entries_.size() >= most_units_) {
    make_room(lock, key);
    old = find_entry(key.content);
  }
  const auto entry = std::make_shared<Entry>(key, type);
  if (old == nullptr) {
    entries_.emplace(key.content, entry);
  } else {
    require_type(key, *old, type);
    if (old->state == Entry::State::loading || old->is_being_replaced) {
      throw Error(ErrorCode::busy, fmt::format("The {} is being loaded.", key.name));
    }
    old->is_being_replaced = true;
  }
  return load(lock, key, entry, make);
}

std::shared_ptr<detail::Unit> UnitStore::await(Lock& lock, const Key& key, const EntryPtr& entry, Deadline deadline) {
  require_no_circle(key, *entry);
  ++counters_.hits;
  ++entry->waiters;
  Loading::set_waits_for(*this, entry.get());
  entry->is_done.wait_until(lock, deadline, [&] { return entry->state != Entry::State::loading; });
  Loading::set_waits_for(*this, nullptr);
  --entry->waiters;
  if (entry->state == Entry::State::ready) return use(*entry);
  if (entry->error) throw *entry->error;
  if (entry->other != nullptr) std::rethrow_exception(entry->other);
  return nullptr;
}

std::shared_ptr<detail::Unit> UnitStore::load(Lock& lock, const Key& key, const EntryPtr& entry, const Maker& make) {
  ++counters_.misses;
  lock.unlock();
  std::shared_ptr<detail::Unit> unit;
  std::optional<Error> error;
  std::exception_ptr other;
  {
    const Loading loading(*this, *entry);
    try {
      unit = make();
    } catch (const Error& thrown) {
      error = thrown;
    } catch (...) {
      other = std::current_exception();
    }
  }
  std::shared_ptr<detail::Unit> old;  // Goes outside the lock.
  lock.lock();
  const auto place = entries_.find(key.content);  // There: what is loaded or replaced is not evicted or forgotten.
  const bool is_replacement = place->second != entry;
  if (is_replacement) place->second->is_being_replaced = false;
  entry->error = error;
  entry->other = other;
  const bool has_failed = error || other != nullptr;
  if (has_failed) {
    entry->state = Entry::State::failed;
    ++counters_.failed;
    if (!is_replacement) entries_.erase(place);
  } else {
    if (is_replacement) {
      old = take_unit(*place->second);
      entry->pins = place->second->pins;
      place->second = entry;
    }
    entry->unit = unit;
    entry->state = Entry::State::ready;
    entry->last_use = next_use();
  }
  entry->is_done.notify_all();
  lock.unlock();
  if (on_end_ && has_failed && !is_replacement) on_end_(key.content, UnitEnd::failed);
  if (error) throw Error(*error);
  if (other != nullptr) std::rethrow_exception(other);
  return unit;
}

bool UnitStore::may_go(const Entry& entry, std::uint32_t looking) const noexcept {
  return entry.state == Entry::State::ready && entry.pins == 0 && entry.waiters == 0 && !entry.is_being_replaced &&
         entry.looking == looking && entry.unit.use_count() == 1 + static_cast<long>(looking) &&
         !entry.unit->is_shared();
}

std::uint64_t UnitStore::find_oldest(const MemoryBudget* budget, std::uint64_t after) const noexcept {
  std::uint64_t oldest = 0;
  for (const auto& [key, entry] : entries_) {
    if (entry->last_use <= after || (oldest != 0 && entry->last_use >= oldest)) continue;
    if (!may_go(*entry, entry->looking)) continue;
    if (budget != nullptr && std::ranges::find(entry->unit->budgets(), *budget) == entry->unit->budgets().end())
      continue;
    oldest = entry->last_use;
  }
  return oldest;
}

std::uint64_t UnitStore::oldest_use(const MemoryBudget* budget, std::uint64_t after) noexcept {
  const Lock lock(mutex_);
  return find_oldest(budget, after);
}

bool UnitStore::evict_used_at(std::uint64_t use) noexcept {
  Lock lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const auto& each) { return each.second->last_use == use; });
  if (found == entries_.end()) return false;
  const EntryPtr entry = found->second;
  return evict_entry(lock, entry);
}

bool UnitStore::evict_entry(Lock& lock, const EntryPtr& entry) {
  if (!may_go(*entry, entry->looking)) return false;
  std::shared_ptr<detail::Unit> unit = entry->unit;
  const std::uint64_t last_use = entry->last_use;
  ++entry->looking;
  const Evicting evicting(*this);
  lock.unlock();
  bool is_idle = false;
  try {
    is_idle = unit->is_idle();
  } catch (...) {
    // Then it may not go.
  }
  lock.lock();
  // Alone with it: what another thread that looks finds, it acts on itself.
  const bool goes = is_idle && may_go(*entry, 1) && entry->last_use == last_use;
  --entry->looking;
  if (goes) {
    entry->unit.reset();
    entries_.erase(entry->key);
    ++counters_.evictions;
  } else if (entry->unit == unit) {
    unit.reset();  // Not the last handle; with the lock held, so that `looking` tells how many there are.
  }
  lock.unlock();
  unit.reset();
  if (goes) entry->log_end();
  if (goes && on_end_) on_end_(entry->key, UnitEnd::evicted);
  lock.lock();
  return goes;
}

void UnitStore::make_room(Lock& lock, const Key& key) {
  for (std::uint64_t after = 0; (after = find_oldest(nullptr, after)) != 0;) {
    const auto oldest =
        std::ranges::find_if(entries_, [&](const auto& each) { return each.second->last_use == after; });
    const EntryPtr entry = oldest->second;
    if (evict_entry(lock, entry)) return;
  }
  throw Error(ErrorCode::busy,
              fmt::format("There is no room for the {}: all {} places are pinned, being loaded or in use.", key.name,
                          most_units_));
}

bool UnitStore::evict(const Key& key) {
  check(process_status(), "evict a unit");  // As above.
  Lock lock(mutex_);
  const EntryPtr entry = find_entry(key.content);
  if (entry == nullptr) return false;
  const auto refuse_for_now = [&](const char* reason) {
    throw Error(ErrorCode::busy, fmt::format("The {} {}.", key.name, reason));
  };
  if (entry->state == Entry::State::loading || entry->is_being_replaced) refuse_for_now("is being loaded");
  if (entry->pins > 0) refuse_for_now("is pinned");
  if (!may_go(*entry, entry->looking)) refuse_for_now("is in use");
  if (!evict_entry(lock, entry)) refuse_for_now("is not idle");
  return true;
}

bool UnitStore::forget(const Key& key) {
  check(process_status(), "forget a unit");  // As above.
  EntryPtr entry;
  std::shared_ptr<detail::Unit> unit;  // Goes outside the lock.
  {
    const Lock lock(mutex_);
    entry = find_entry(key.content);
    if (entry == nullptr) return false;
    if (entry->state == Entry::State::loading || entry->is_being_replaced) {
      throw Error(ErrorCode::busy, fmt::format("The {} is being loaded.", key.name));
    }
    unit = take_unit(*entry);
    entries_.erase(key.content);
    ++counters_.evictions;
  }
  unit.reset();
  entry->log_end();
  if (on_end_) on_end_(key.content, UnitEnd::evicted);
  return true;
}

bool UnitStore::pin(const Key& key) {
  check(process_status(), "pin a unit");  // As above.
  const Lock lock(mutex_);
  const EntryPtr entry = find_entry(key.content);
  if (entry == nullptr || entry->state != Entry::State::ready) return false;
  ++entry->pins;
  return true;
}

void UnitStore::unpin(const Key& key) {
  check(process_status(), "unpin a unit");  // As above.
  const Lock lock(mutex_);
  const EntryPtr entry = find_entry(key.content);
  if (entry == nullptr || entry->pins == 0) refuse(fmt::format("The {} is not pinned.", key.name));
  --entry->pins;
}

void UnitStore::clear() noexcept {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  const auto is_loaded = [](const auto& each) {
    return each.second->state == Entry::State::ready && !each.second->is_being_replaced;
  };
  Lock lock(mutex_);
  for (auto found = entries_.begin(); (found = std::ranges::find_if(entries_, is_loaded)) != entries_.end();) {
    auto gone = entries_.extract(found);
    std::shared_ptr<detail::Unit> unit = take_unit(*gone.mapped());
    lock.unlock();
    unit.reset();
    gone = {};
    lock.lock();
  }
  has_evicted_.wait(lock, [&] { return evicting_ == Evicting::count(*this); });
}

UnitCounters UnitStore::counters() const {
  check(process_status(), "count units");  // As above.
  const Lock lock(mutex_);
  UnitCounters counters = counters_;
  for (const auto& [key, entry] : entries_) {
    if (entry->state != Entry::State::ready) continue;
    ++counters.units;
    counters.bytes += entry->unit->bytes();
  }
  return counters;
}

}  // namespace weft
