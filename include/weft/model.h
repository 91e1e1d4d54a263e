#pragma once

#include <weft/buffer.h>
#include <weft/command.h>
#include <weft/completion.h>
#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/plan/topology.h>
#include <weft/prepared.h>
#include <weft/region.h>
#include <weft/trusted.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

class Graph;
struct DefinitionState;
struct FragmentState;

/// One shape of a model: its commands, and the regions that requests fill and read.
struct FragmentOptions {
  std::vector<TensorRegion> inputs = {};
  std::vector<TensorRegion> outputs = {};
  std::vector<Command> commands = {};
  std::string label = {};  ///< For messages and the topology.
};

/// Validated commands of one shape, with shared weights and code. Owns no slot.
///
/// A shared handle to an immutable value; thread-safe. Outlives the definition and the session that it came from.
class WEFT_API ModelFragment {
 public:
  // No move: a handle that is moved from stays one.
  ModelFragment(const ModelFragment&) = default;
  ModelFragment& operator=(const ModelFragment&) = default;

  /// Makes a pool of slots for this fragment alone. The pool knows the fragment's regions: `slot.input(x)`,
  /// `run.output(y)`. Errors: `invalid` for 0 slots or no commands; `out_of_memory`; on any error nothing is kept.
  [[nodiscard]] PreparedModel prepare(PrepareOptions options = {}) const;

  /// What `prepare` charges a budget for these options: arenas, staging, completion words, and graphs as they are
  /// estimated. A budget with so many bytes left takes the model; with one less it is refused before anything is
  /// allocated. Plans the model and allocates nothing; the first call in a context measures what graphs take, with some
  /// that never run. Errors: those of `prepare` that come before its first allocation; what the device says.
  [[nodiscard]] std::uint64_t required_bytes(PrepareOptions options = {}) const;

  /// Appends the commands to an unprepared graph. `inputs` take the place of the fragment's input regions without a
  /// copy; what else it uses gets storage in the graph. Returns the outputs; they have values once the graph is
  /// prepared and has run.
  ///
  /// An output that shares an input's allocation lives in the caller's tensor, which runs then overwrite. Needs
  /// exclusive use of the graph. Errors, all before the graph changes: `invalid` when the graph is of another context,
  /// for another number of tensors, a tensor of another graph or descriptor, inputs that overlap where the fragment's
  /// do not or that share bytes with the model's weights or state, or commands that reach outside the input that
  /// replaces their allocation.
  [[nodiscard]] std::vector<DeviceTensor> record(Graph& graph, const std::vector<DeviceTensor>& inputs) const;

  /// The same fragment, whose private scratch takes turns with that of other such fragments that are recorded into the
  /// same graph: less memory, and in exchange an order between branches that share it, which the topology shows as
  /// edges of reused scratch. Allocations with an input or output, weights and state never take part; each slot has
  /// scratch of its own.
  ///
  /// The caller vouches that every byte of private scratch that the fragment reads was written earlier in the same run
  /// by the same fragment: neither zeroes nor old values may be relied on.
  [[nodiscard]] ModelFragment reuse_private_scratch(Trusted) const;

  [[nodiscard]] const Context& context() const noexcept;

 private:
  friend class ModelDefinition;
  friend struct FragmentAccess;
  explicit ModelFragment(std::shared_ptr<const FragmentState> state) noexcept;
  std::shared_ptr<const FragmentState> state_;
};

/// A frozen session: immutable weights and code, whatever the shape, and the state that runs write.
///
/// A shared handle to an immutable value, but for the bytes of the state; thread-safe.
class WEFT_API ModelDefinition {
 public:
  ModelDefinition(const ModelDefinition&) = default;
  ModelDefinition& operator=(const ModelDefinition&) = default;

  [[nodiscard]] const Context& context() const noexcept;

  /// Device bytes of all weights, each once, whatever the number of fragments and slots.
  [[nodiscard]] std::uint64_t weight_bytes() const noexcept;
  /// Bytes of all state, each once, whatever the number of fragments and slots.
  [[nodiscard]] std::uint64_t state_bytes() const noexcept;

  /// The memory behind a region of state: ModelSession::state. What is done with it comes after the runs that were
  /// submitted before and touch the same bytes, and before those that are submitted later; state in shared memory can
  /// be mapped. Errors: `invalid` for an empty region, or one that is not of this model's state.
  [[nodiscard]] Buffer state(const Region& region) const;
  /// The same as the tensor that the region holds: `download` reads it, and a `copy_into` with it as the destination
  /// writes it. Errors: also `invalid` for an empty tensor, one that its region does not hold, or one that does not
  /// start at a multiple of its element size.
  [[nodiscard]] DeviceTensor state(const TensorRegion& region) const;
  /// Zeroes a region of state, in that order too. Returns before it is done. Errors, and then nothing happens: those of
  /// `state`; `busy` while the host maps it.
  Completion reset_state(const Region& region) const;

  /// What the kernel's launch rule makes of a workload. Pure; its own errors pass through. Errors: `invalid` for a
  /// kernel of another session, or one without a launch rule.
  [[nodiscard]] LaunchConfig launch_config(KernelId kernel, std::span<const std::uint64_t> workload) const;

  /// Validates the commands of one shape: all inputs, then all outputs, then the commands in order; the first violation
  /// is thrown. Allocates no device memory and runs nothing. Inputs and outputs are scratch, neither weights nor state,
  /// and start at a multiple of their element size.
  ///
  /// The caller vouches that each kernel reads and writes its bound regions as its spec says and nothing else, and that
  /// a command whose own bindings overlap is safe to run so. Errors: `invalid`, with the command's position and label.
  [[nodiscard]] ModelFragment fragment(Trusted, FragmentOptions options) const;

  /// `fragment`, then ModelFragment::prepare, with the errors of both in that order.
  [[nodiscard]] PreparedModel prepare(Trusted, FragmentOptions fragment, PrepareOptions options = {}) const;

 private:
  friend class ModelSession;
  friend struct DefinitionAccess;
  explicit ModelDefinition(std::shared_ptr<const DefinitionState> state) noexcept;
  std::shared_ptr<const DefinitionState> state_;
};

}  // namespace weft
