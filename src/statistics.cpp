#include <weft/statistics.h>

#include <nlohmann/json.hpp>

namespace weft {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const MemoryCounters& counters) {
  return {
      {"live_bytes", counters.live_bytes}, {"peak_bytes", counters.peak_bytes}, {"allocations", counters.allocations}};
}

Json json_of(const CopyCounters& copies) {
  return {{"up_bytes", copies.up_bytes}, {"device_bytes", copies.device_bytes}, {"down_bytes", copies.down_bytes}};
}

Json json_of(const RunCounters& runs) {
  return {{"submitted", runs.submitted},
          {"completed", runs.completed},
          {"failed", runs.failed},
          {"cancelled", runs.cancelled}};
}

Json json_of(const SlotStatistics& slots) {
  return {{"slots", slots.slots},
          {"executables", slots.executables},
          {"leased", slots.leased},
          {"in_flight", slots.in_flight},
          {"unhealthy", slots.unhealthy},
          {"runs", json_of(slots.runs)},
          {"copies", json_of(slots.copies)},
          {"empty_acquires", slots.empty_acquires},
          {"patched_nodes", slots.patched_nodes}};
}

}  // namespace

RunCounters& RunCounters::operator+=(const RunCounters& other) noexcept {
  submitted += other.submitted;
  completed += other.completed;
  failed += other.failed;
  cancelled += other.cancelled;
  return *this;
}

CopyCounters& CopyCounters::operator+=(const CopyCounters& other) noexcept {
  up_bytes += other.up_bytes;
  device_bytes += other.device_bytes;
  down_bytes += other.down_bytes;
  return *this;
}

SlotStatistics& SlotStatistics::operator+=(const SlotStatistics& other) noexcept {
  slots += other.slots;
  executables += other.executables;
  leased += other.leased;
  in_flight += other.in_flight;
  unhealthy += other.unhealthy;
  runs += other.runs;
  copies += other.copies;
  empty_acquires += other.empty_acquires;
  patched_nodes += other.patched_nodes;
  return *this;
}

std::string to_json(const SlotStatistics& statistics) { return json_of(statistics).dump(2) + '\n'; }

std::string to_json(const ContextStatistics& statistics) {
  const Json json{{"memory",
                   {{"requested", json_of(statistics.memory.requested)},
                    {"reserved", json_of(statistics.memory.reserved)},
                    {"staging", json_of(statistics.memory.staging)},
                    {"graphs", json_of(statistics.memory.graphs)}}},
                  {"models", statistics.models},
                  {"slots", json_of(statistics.slots)},
                  {"transfers",
                   {{"lanes", statistics.transfers.lanes},
                    {"submitted", statistics.transfers.submitted},
                    {"copies", json_of(statistics.transfers.copies)}}},
                  {"callback_failures", statistics.callback_failures}};
  return json.dump(2) + '\n';
}

}  // namespace weft
