#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include "operation.h"

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace weft {

/// Gives the calls that need a workspace allocations at the end of `allocations`. Calls that come one after the other
/// anyway take turns with one, so that a workspace orders nothing by itself.
void add_workspaces(std::vector<Operation>& operations, std::vector<Allocation>& allocations);

/// Records calls as graphs, and loads what each needs before its first recording.
class CallRecorder {
 public:
  /// Records on `stream`, on which nobody else works meanwhile.
  explicit CallRecorder(std::shared_ptr<DeviceApi> api) : api_(std::move(api)) {}

  /// Of each call among the operations, in order, the graph of its nodes at these addresses. Errors: `invalid` for a
  /// call whose work cannot be recorded; `failed` for one that throws; what the device says. Nothing is left of a
  /// recording then.
  [[nodiscard]] std::vector<UniqueGraph> record(std::span<const Operation> operations,
                                                std::span<const DeviceAddress> addresses, StreamHandle stream);

 private:
  [[nodiscard]] UniqueGraph record(const CapturedOperation& operation, std::span<const DeviceAddress> addresses,
                                   StreamHandle stream);

  std::shared_ptr<DeviceApi> api_;
  std::set<const Captured*> loaded_;
};

}  // namespace weft
