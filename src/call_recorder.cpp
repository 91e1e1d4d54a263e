#include "call_recorder.h"

#include "error_context.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/plan/schedule.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

namespace weft {

namespace {

void* pointer(DeviceAddress address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT: libraries take addresses as pointers
}

/// A call with one slot's addresses, and what its functions came to.
class Recording {
 public:
  Recording(const CapturedOperation& operation, std::span<const DeviceAddress> addresses)
      : call_(operation.call), bindings_(std::make_shared<std::vector<void*>>()) {
    const auto address = [&](const Location& place) { return addresses[place.allocation] + place.offset; };
    for (const Location& place : operation.bindings) addresses_.push_back(address(place));
    std::ranges::transform(addresses_, std::back_inserter(*bindings_), pointer);
    if (!operation.workspace) return;
    addresses_.push_back(address(*operation.workspace));
    workspace_ = pointer(addresses_.back());
  }

  [[nodiscard]] CaptureRequest request(bool loads) {
    CaptureRequest request{.name = call_->name, .addresses = addresses_, .load = {}, .enqueue = {}, .host = {}};
    if (loads && call_->load) request.load = [this] { run(call_->load); };
    request.enqueue = [this](StreamHandle stream) {
      if (exception_ != nullptr) return;  // It could not be loaded.
      const int before = last_error();    // Somebody else's, which stays.
      run([&] { call_->enqueue(arguments(reinterpret_cast<CUstream_st*>(stream))); });
      if (const int after = last_error(); after == 0 || after == before) return;
      static_cast<void>(call_->last_error(true, error_));
    };
    // The node outlives this object: it keeps what the arguments point to.
    if (call_->host)
      request.host = [call = call_, kept = bindings_, arguments = arguments(nullptr)] { call->host(arguments); };
    return request;
  }

  void require_success(DeviceStatus status) const {
    if (exception_ != nullptr) rethrow();
    if (error_ != nullptr) refuse(fmt::format("The CUDA runtime refuses what it does: {}.", error_));
    if (status.code == StatusCode::invalid || status.code == StatusCode::not_ready)
      refuse(fmt::format("What it does cannot be recorded: {}.", status.detail));
    check(status, "record the call");
  }

 private:
  [[nodiscard]] CapturedCall arguments(CUstream_st* stream) const {
    return {
        .stream = stream, .bindings = *bindings_, .workspace = workspace_, .workspace_bytes = call_->workspace_bytes};
  }

  [[nodiscard]] int last_error() const {
    const char* text = nullptr;
    return call_->last_error == nullptr ? 0 : call_->last_error(false, text);
  }

  template <class Body>
  void run(const Body& body) noexcept {
    try {
      body();
    } catch (...) {
      exception_ = std::current_exception();
    }
  }

  [[noreturn]] void rethrow() const {
    try {
      std::rethrow_exception(exception_);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(ErrorCode::failed, fmt::format("It throws: {}", error.what()));
    } catch (...) {
      throw Error(ErrorCode::failed, "It throws something that is no std::exception.");
    }
  }

  std::shared_ptr<const Captured> call_;
  std::shared_ptr<std::vector<void*>> bindings_;
  std::vector<DeviceAddress> addresses_;
  void* workspace_ = nullptr;
  std::exception_ptr exception_;
  const char* error_ = nullptr;
};

/// Which operations come before others, by what they do to bytes and by stated order.
class Ancestry {
 public:
  explicit Ancestry(const std::vector<Operation>& operations) : into_(operations.size()) {
    std::vector<CommandUses> uses;
    std::ranges::transform(operations, std::back_inserter(uses), &Operation::uses);
    for (const ScheduleEdge& edge : schedule(uses).edges) into_[edge.to].push_back(edge.from);
  }

  /// By operation, whether it comes before this one.
  [[nodiscard]] std::vector<bool> before(std::size_t operation) const {
    std::vector<bool> found(into_.size(), false);
    std::vector<std::size_t> next{operation};
    while (!next.empty()) {
      const std::size_t at = next.back();
      next.pop_back();
      for (const std::uint32_t from : into_[at]) {
        if (!found[from]) next.push_back(from);
        found[from] = true;
      }
    }
    return found;
  }

 private:
  std::vector<std::vector<std::uint32_t>> into_;
};

}  // namespace

void add_workspaces(std::vector<Operation>& operations, std::vector<Allocation>& allocations) {
  struct Workspace {
    std::uint32_t allocation;
    std::size_t last_user;
  };
  const auto needs_workspace = [](const Operation& operation) {
    const auto* captured = std::get_if<CapturedOperation>(&operation.action);
    return captured != nullptr && captured->call->workspace_bytes > 0;
  };
  if (std::ranges::none_of(operations, needs_workspace)) return;
  const Ancestry ancestry(operations);
  std::vector<Workspace> workspaces;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!needs_workspace(operations[i])) continue;
    auto& captured = std::get<CapturedOperation>(operations[i].action);
    const std::uint64_t bytes = captured.call->workspace_bytes;
    const std::vector<bool> before = ancestry.before(i);
    auto workspace = std::ranges::find_if(workspaces, [&](const Workspace& held) { return before[held.last_user]; });
    if (workspace == workspaces.end()) {
      workspaces.push_back({static_cast<std::uint32_t>(allocations.size()), i});
      workspace = std::prev(workspaces.end());
      allocations.push_back({.label = captured.call->name + " workspace"});
    }
    workspace->last_user = i;
    Allocation& allocation = allocations[workspace->allocation];
    allocation.bytes = std::max(allocation.bytes, bytes);
    captured.workspace = Location{workspace->allocation, 0};
    operations[i].uses.uses.push_back({workspace->allocation, 0, bytes, Access::write});
  }
}

std::vector<UniqueGraph> CallRecorder::record(std::span<const Operation> operations,
                                              std::span<const DeviceAddress> addresses, StreamHandle stream) {
  std::vector<UniqueGraph> graphs;
  for (const Operation& operation : operations) {
    const auto* captured = std::get_if<CapturedOperation>(&operation.action);
    if (captured == nullptr) continue;
    in_context([&] { return fmt::format("recording the call \"{}\"", captured->call->name); },
               [&] { graphs.push_back(record(*captured, addresses, stream)); });
  }
  return graphs;
}

// A thread that synchronizes the whole device while another captures spoils the capture, and the driver tells neither
// apart from a call that spoils its own: that one does so every time.
UniqueGraph CallRecorder::record(const CapturedOperation& operation, std::span<const DeviceAddress> addresses,
                                 StreamHandle stream) {
  constexpr int kTries = 5;
  const bool loads = loaded_.insert(operation.call.get()).second;
  for (int attempt = 1;; ++attempt) {
    Recording recording(operation, addresses);
    GraphHandle graph{};
    const DeviceStatus status = api_->capture(recording.request(loads && attempt == 1), stream, graph);
    UniqueGraph captured(api_, graph);  // A call may fail and leave a graph all the same.
    if (status.code == StatusCode::not_ready && attempt < kTries) continue;
    recording.require_success(status);
    return captured;
  }
}

}  // namespace weft
