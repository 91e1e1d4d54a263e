#pragma once

#include "allocation_domain.h"
#include "definition_state.h"
#include "late_declaration.h"
#include "operation.h"
#include "pinned_buffer.h"
#include "placed_memory.h"
#include "staging.h"
#include "validation.h"
#include "weight.h"
#include <weft/command.h>
#include <weft/context.h>
#include <weft/device.h>
#include <weft/error.h>
#include <weft/region.h>
#include <weft/session.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// What is behind a ModelSession. Used by one thread at a time.
class SessionState {
 public:
  SessionState(Device device, SessionOptions options);
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  /// Lets go of a session, whose queued work may still use what it has: then the process keeps it until that has
  /// drained. Never waits.
  static void release(std::shared_ptr<SessionState> session) noexcept;
  [[nodiscard]] bool has_drained() const noexcept;

  /// Errors: `failed`, with the cause, once queued work has failed; `device_lost`.
  void require_healthy() const;

  // What the model is made of: session_state.cpp.
  [[nodiscard]] Region add_scratch(std::string label, std::uint64_t bytes, Placement placement);
  [[nodiscard]] Region add_state(std::string label, std::uint64_t bytes, Placement placement);
  [[nodiscard]] Region add_weight(std::string label, std::span<const std::byte> bytes);
  [[nodiscard]] Region add_weight(std::string label, AdoptedMemory memory, std::uint64_t bytes);
  [[nodiscard]] LateScalarId add_late(std::string label, std::size_t bytes, std::optional<Scalar> value);
  [[nodiscard]] Region add_late_region(std::string label, std::uint64_t bytes, std::optional<TensorDesc> desc);
  [[nodiscard]] KernelId load(const KernelSpec& spec);

  // Immediate work: session_work.cpp.
  void upload(const Region& region, std::span<const std::byte> bytes);
  /// Copies the regions to `destinations`, which have their sizes.
  void read(std::span<const Region> regions, std::span<const std::span<std::byte>> destinations);
  void record(const std::string& key, std::span<const Command> commands);
  void replay(const std::string& key);
  void synchronize();
  /// A region that immediate work can have: of this session and not empty. `doing` completes "The <doing> of
  /// allocation".
  const Allocation& require_bytes(const Region& region, const char* doing) const;

  /// Makes a definition of what the session has, and lets go of the rest: session_freeze.cpp.
  [[nodiscard]] DefinitionState freeze(const Context& context);

 private:
  class Growth;

  struct LoadedImage {
    std::string label;
    std::vector<std::byte> bytes;       // A copy: the caller may free an image and load another one at its address.
    const void* function;               // Of an image that is a kernel of the program.
    std::vector<ModuleGlobal> globals;  // What its variables were set to.
    LoadedModule module;
  };

  /// A graph to be replayed, and what its calls need.
  struct RecordedGraph {
    std::vector<std::shared_ptr<const Captured>> calls;
    std::vector<PlacedMemory> workspaces;
    std::vector<UniqueGraph> captured;
    UniqueExecutable executable;
  };

  [[nodiscard]] DeviceApi& api() const noexcept { return *domain_->api(); }
  [[nodiscard]] StreamHandle stream() const noexcept { return domain_->stream(); }
  [[nodiscard]] ValidationScope scope() const noexcept;
  [[nodiscard]] Region add(Allocation allocation);
  /// Memory for an allocation, zeroed. Errors: `out_of_memory`; those of the budget and, which end the session, of the
  /// device.
  [[nodiscard]] PlacedMemory allocate_zeroed(const Allocation& allocation);
  /// The module of the spec's image with its variables set as the spec says; null where there is none.
  [[nodiscard]] LoadedModule find_module(const KernelSpec& spec) const noexcept;
  /// Queues the values of a module's variables ahead of everything that runs its kernels.
  void set_globals(const LoadedModule& module, const KernelSpec& spec);
  /// 0 for scratch without memory.
  [[nodiscard]] DeviceAddress address(std::uint32_t allocation) const noexcept;
  /// Once staging_ is ready for it.
  void copy_in(DeviceAddress destination, std::span<const std::byte> bytes);
  [[nodiscard]] const std::shared_ptr<const LoadedKernel>& fill_kernel();

  /// Runs work on the device. An Error that leaves it is the session's end.
  template <class Body>
  void on_device(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      failure_ = error.sentence();
      throw;
    }
  }

  const std::uint64_t id_;
  const Device device_;
  const std::shared_ptr<AllocationDomain> domain_;
  std::optional<std::string> failure_;  // The cause, once queued work has failed.
  std::vector<Allocation> allocations_;
  std::vector<PlacedMemory> memory_;              // By allocation; none for weights, nor for scratch until its use.
  std::vector<std::shared_ptr<Weight>> weights_;  // Those of allocations_, for the freeze.
  std::vector<std::uint32_t> states_;             // The same, by index.
  std::vector<LoadedImage> images_;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels_;
  std::vector<std::shared_ptr<const LateScalarDeclaration>> late_scalars_;
  std::shared_ptr<const LoadedKernel> fill_kernel_;  // Null until a graph needs it.
  std::map<std::string, RecordedGraph, std::less<>> graphs_;
  StagedCopy staging_;
  PinnedBuffer readback_;
  std::list<std::shared_ptr<SessionState>> place_;  // Made with the session, so that `release` cannot fail.
};

/// Memory for scratch that has none yet, zeroed. Taken back unless it is kept.
class SessionState::Growth {
 public:
  explicit Growth(SessionState& session) noexcept : session_(session) {}
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;
  ~Growth();

  /// Errors: those of allocate_zeroed.
  void add(std::uint32_t allocation);
  void keep() noexcept { added_.clear(); }

 private:
  SessionState& session_;
  std::vector<std::uint32_t> added_;
};

}  // namespace weft
