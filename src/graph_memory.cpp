#include "graph_memory.h"

#include "checked_math.h"
#include "device/handles.h"
#include "device/process_state.h"
#include "refusal.h"
#include <weft/error.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace weft {

namespace {

// A driver takes memory in blocks (H200, driver 580: of 2 MiB, for nodes of 1.7 to 2.3 KiB each), so the graphs that
// are measured are many. Each round is measured alone, with all graphs kept, and the middle one is believed: what
// others allocate meanwhile spoils one round at most.
constexpr std::uint64_t kRounds = 3;
constexpr std::uint64_t kExecutables = 8;
constexpr std::uint64_t kFewNodes = 16;
constexpr std::uint64_t kManyNodes = 512;

// Beyond the most it was not the graphs, or a block that others will stand in, too. Below the least they were made in
// memory that the driver kept of earlier ones.
constexpr GraphCost kLeast{.executable_bytes = 0, .node_bytes = 2048};
constexpr GraphCost kMost{.executable_bytes = std::uint64_t{256} << 10, .node_bytes = std::uint64_t{16} << 10};
constexpr std::uint64_t kBlock = std::uint64_t{2} << 20;

/// Bytes of the device that are in use outside weft's pool.
std::uint64_t used_outside_pool(DeviceApi& api) {
  MemoryInfo info;
  check(api.memory_info(info), "tell its memory");
  const std::uint64_t used = info.total_bytes - std::min(info.total_bytes, info.free_bytes);
  return used - std::min(used, info.pool_reserved_bytes);
}

std::uint64_t growth(std::uint64_t before, std::uint64_t after) noexcept { return after - std::min(before, after); }

std::uint64_t divide_up(std::uint64_t bytes, std::uint64_t count) noexcept { return (bytes + count - 1) / count; }

UniqueGraph make_chain(const std::shared_ptr<DeviceApi>& api, const LoadedKernel& kernel, std::uint64_t nodes) {
  UniqueGraph graph = create_graph(api);
  // Never launched, so its pointers may be null.
  const KernelNode node{.kernel = kernel.handle,
                        .grid = {},
                        .block = kernel.spec.block,
                        .dynamic_shared_bytes = 0,
                        .parameters = std::vector<std::byte>(kernel.compiled.parameter_bytes())};
  std::vector<Edge> edges;
  for (std::uint64_t i = 0; i < nodes; ++i) {
    NodeHandle handle{};
    check(api->add_node(graph.get(), node, edges, handle), "add a graph node");
    edges = {{handle, false}};
  }
  return graph;
}

/// What kExecutables executables of a graph take; they are added to `kept`.
std::uint64_t measure(const AllocationDomain& domain, const UniqueGraph& graph, std::vector<UniqueExecutable>& kept) {
  DeviceApi& api = *domain.api();
  const std::uint64_t before = used_outside_pool(api);
  for (std::uint64_t i = 0; i < kExecutables; ++i) {
    kept.push_back(instantiate(domain.api(), graph.get()));
    check(api.upload(kept.back().get(), domain.stream()), "upload a graph");
  }
  check(api.synchronize_stream(domain.stream()), "upload a graph");
  return growth(before, used_outside_pool(api));
}

/// Measurements of the process: how many there have been, and how many are under way.
struct Measurements {
  std::mutex mutex;
  std::uint64_t begun = 0;  // Guarded by mutex, as the next.
  std::uint64_t underway = 0;
  std::uint64_t crowded = 0;  // The last one that was not alone when it or a later one began.
};

Measurements& measurements() {
  static auto* const instance = new Measurements;  // Never destroyed: graphs may go while the process ends.
  return *instance;
}

std::uint64_t begin_measurement() {
  Measurements& all = measurements();
  const std::lock_guard lock(all.mutex);
  ++all.begun;
  if (++all.underway > 1) all.crowded = all.begun;
  return all.begun;
}

/// Whether it was alone all along.
bool end_measurement(std::uint64_t number) noexcept {
  Measurements& all = measurements();
  const std::lock_guard lock(all.mutex);
  --all.underway;
  return all.crowded < number;
}

/// Is under way until its end.
class Measurement {
 public:
  Measurement() : number_(begin_measurement()) {}
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;
  ~Measurement() { static_cast<void>(end_measurement(number_)); }

 private:
  std::uint64_t number_;
};

GraphCost calibrate(const AllocationDomain& domain, const LoadedKernel& kernel) {
  const Measurement measurement;  // So that nobody takes these graphs for others.
  const UniqueGraph few = make_chain(domain.api(), kernel, kFewNodes);
  const UniqueGraph many = make_chain(domain.api(), kernel, kManyNodes);
  std::vector<UniqueExecutable> kept;
  std::array<std::uint64_t, kRounds> of_few{};
  std::array<std::uint64_t, kRounds> of_many{};
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    of_few[round] = measure(domain, few, kept);
    of_many[round] = measure(domain, many, kept);
  }
  const auto middle = [](std::array<std::uint64_t, kRounds>& rounds) {
    std::ranges::sort(rounds);
    return rounds[kRounds / 2];
  };
  const std::uint64_t small = middle(of_few);
  const std::uint64_t node = divide_up(growth(small, middle(of_many)), kExecutables * (kManyNodes - kFewNodes));
  const std::uint64_t executable = divide_up(growth(node * kExecutables * kFewNodes, small), kExecutables);
  return {std::clamp(executable, kLeast.executable_bytes, kMost.executable_bytes),
          std::clamp(node, kLeast.node_bytes, kMost.node_bytes)};
}

std::optional<std::uint64_t> cost_of(const GraphCost& cost, const GraphCount& count) noexcept {
  const auto executables = checked_multiply(cost.executable_bytes, count.executables);
  const auto nodes = checked_multiply(cost.node_bytes, count.nodes);
  return executables && nodes ? checked_add(*executables, *nodes) : std::nullopt;
}

std::uint64_t bytes_of(const GraphCost& cost, const GraphCount& count) {
  const auto bytes = cost_of(cost, count);
  if (!bytes) refuse("The graphs of all slots take more than 2^64 bytes.");
  return *bytes;
}

}  // namespace

std::uint64_t estimate_graphs(AllocationDomain& domain, const LoadedKernel& kernel, const GraphCount& count) {
  check(process_status(), "measure graphs");
  GraphCalibration& calibration = domain.graph_calibration;
  const std::lock_guard lock(calibration.mutex);  // The device alone is called under it.
  if (!calibration.cost) calibration.cost = calibrate(domain, kernel);
  return bytes_of(*calibration.cost, count);
}

std::uint64_t estimate_graphs(AllocationDomain& domain, const GraphCount& count) {
  check(process_status(), "estimate graphs");
  GraphCalibration& calibration = domain.graph_calibration;
  const std::lock_guard lock(calibration.mutex);
  return bytes_of(calibration.cost.value_or(kLeast), count);
}

GraphMemory::GraphMemory(std::shared_ptr<AllocationDomain> domain, const GraphCount& count, std::uint64_t estimate,
                         MemoryReservation charge) noexcept
    : domain_(std::move(domain)), count_(count), charge_(std::move(charge)), bytes_(estimate) {}

void GraphMemory::begin() {
  measurement_ = begin_measurement();  // First: what ends in between must count as beside it.
  before_ = used_outside_pool(*domain_->api());
}

GraphMemory::~GraphMemory() {
  if (measurement_ != 0) static_cast<void>(end_measurement(std::exchange(measurement_, 0)));
}

void GraphMemory::settle() {
  const std::uint64_t after = used_outside_pool(*domain_->api());
  if (end_measurement(std::exchange(measurement_, 0))) {
    const std::uint64_t grown = growth(before_, after);
    // What is known to be theirs: the last block may be for others, too.
    const std::uint64_t measured = grown - std::min(grown, kBlock);
    // Beyond that it was what others took meanwhile, in this process or another.
    const auto most = checked_multiply(bytes_, std::uint64_t{2});
    if (!most || measured <= *most) bytes_ = std::max(bytes_, measured);
  }
  counted_ = {domain_, &AllocationDomain::graphs, bytes_, count_.executables};
  if (!domain_->budget() || bytes_ <= charge_.bytes()) return;
  try {
    charge_.merge(domain_->charge(bytes_ - charge_.bytes(), Shortage::refuse));
  } catch (const Error&) {
    // The graphs are there; refusing them now would mend nothing.
  }
}

}  // namespace weft
