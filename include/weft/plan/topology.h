#pragma once

#include <weft/export.h>
#include <weft/plan/hazard.h>
#include <weft/plan/schedule.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

/// Whose work a node does.
enum class NodeKind : std::uint8_t {
  fill,      ///< A Fill command.
  dispatch,  ///< A Dispatch command.
  captured,  ///< A captured call: its nodes on the device are as many as the call enqueues.
  own,       ///< weft's own; TopologyNode::role says which.
};

/// What a node of weft's own is for.
enum class OwnRole : std::uint8_t {
  copy_in,
  copy_out,
  completion,
  fill_kernel,  ///< A fill as a kernel, where the driver refuses a memset node.
  copy,         ///< A copy that a graph was given (Graph::copy).
};

/// What an allocation of a graph is to the model.
enum class AllocationKind : std::uint8_t {
  weight,
  scratch,
  reused,  ///< Scratch that several fragments of the graph take turns with: see ModelFragment::reuse_private_scratch.
  input,
  output,
  state,     ///< The model's own that its runs write: see ModelSession::state.
  late,      ///< Memory that each request brings: see ModelSession::late_region.
  external,  ///< Other memory outside the slot: of a buffer, or of another request's output.
  own,       ///< weft's own: staging, counters, the completion word.
};

[[nodiscard]] WEFT_API std::string_view to_string(NodeKind kind) noexcept;
/// "copy-in", "copy-out", "completion", "fill-kernel" or "copy".
[[nodiscard]] WEFT_API std::string_view to_string(OwnRole role) noexcept;
[[nodiscard]] WEFT_API std::string_view to_string(AllocationKind kind) noexcept;

/// A node that sets bytes.
struct FillDetail {
  std::uint64_t bytes = 0;
  std::uint8_t value = 0;

  friend bool operator==(const FillDetail&, const FillDetail&) = default;
};

/// A node that copies bytes without a kernel.
struct CopyDetail {
  std::uint64_t bytes = 0;

  friend bool operator==(const CopyDetail&, const CopyDetail&) = default;
};

/// A scalar parameter whose value each request brings: see ModelSession::late.
struct LateParameter {
  std::uint32_t index = 0;  ///< Position in the kernel's parameter list.
  std::string label;

  friend bool operator==(const LateParameter&, const LateParameter&) = default;
};

/// A node that launches a kernel.
struct KernelDetail {
  std::string symbol;
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t shared_bytes = 0;  ///< Dynamic shared memory.
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  bool cooperative = false;
  std::vector<LateParameter> late = {};

  friend bool operator==(const KernelDetail&, const KernelDetail&) = default;
};

/// The nodes of a captured call.
struct CapturedDetail {
  std::string name;
  std::uint64_t workspace_bytes = 0;

  friend bool operator==(const CapturedDetail&, const CapturedDetail&) = default;
};

struct TopologyNode {
  NodeKind kind = NodeKind::dispatch;
  std::optional<OwnRole> role;  ///< Set exactly if `kind` is own.
  std::string label;
  std::variant<FillDetail, CopyDetail, KernelDetail, CapturedDetail> detail;
  std::vector<ByteUse> uses;  ///< `allocation` is a position in Topology::allocations.

  friend bool operator==(const TopologyNode&, const TopologyNode&) = default;
};

struct TopologyEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  /// `allocation` is a position in Topology::allocations. Empty for an edge into the completion node that only says
  /// "all done".
  std::vector<Reason> reasons;
  bool programmatic = false;  ///< `to` may start early, and itself waits for the end of `from`.

  friend bool operator==(const TopologyEdge&, const TopologyEdge&) = default;
};

struct TopologyAllocation {
  AllocationKind kind = AllocationKind::scratch;
  std::string label;
  std::uint64_t bytes = 0;  ///< Used extent.
  std::optional<std::uint64_t>
      offset;  ///< In the slot's arena; absent for what stands elsewhere (weights, pinned memory).

  friend bool operator==(const TopologyAllocation&, const TopologyAllocation&) = default;
};

/// One prepared graph, described for people and tools. A plain value: it keeps nothing alive and may be copied between
/// threads.
struct Topology {
  std::string title;
  Order order = Order::parallel;
  std::uint32_t slots = 0;
  std::uint64_t requested_bytes = 0;  ///< A slot's private memory as asked for.
  std::uint64_t reserved_bytes = 0;   ///< The same with padding.
  std::uint64_t redundant_edges = 0;  ///< As Schedule::redundant_edges.
  std::vector<TopologyAllocation> allocations;
  std::vector<TopologyNode> nodes;
  std::vector<TopologyEdge> edges;

  [[nodiscard]] WEFT_API std::size_t count(NodeKind kind) const noexcept;

  friend bool operator==(const Topology&, const Topology&) = default;
};

/// One line for the graph, one for each allocation, one for each node with its incoming edges:
///
///     graph "digits": 1 fill, 1 dispatch, 0 own nodes, 1 edge, parallel, 4 slots, 8192 bytes requested, 8192 reserved
///     a0 scratch "x" 8192 bytes at 0
///     n0 fill "clear" 8192 bytes value 0x00
///     n1 dispatch "fc1" weft_linear_f32 grid(2,1,1) block(256,1,1) <- n0 [raw "x" 0..8192]
///
/// Captured calls, where there are any, are counted behind the dispatches: "1 captured call". A kernel's parameters
/// that are late stand behind its block, each with its position: late(3 "alpha").
///
/// A programmatic edge is "~n0". Ranges are half-open. A reason whose bytes are of reused scratch says so: [war reused
/// "temp" 0..64]. Labels are quoted: quotes, backslashes and control characters are escaped, bytes that are not UTF-8
/// stand as \xNN; an allocation without a label is #position. The same topology always gives the same text, whatever
/// the order of its edges. Thread-safe (pure); never refuses a label.
[[nodiscard]] WEFT_API std::string to_text(const Topology& topology);

/// The same as a Graphviz digraph: a node is labelled with its text line, an edge with its reasons.
[[nodiscard]] WEFT_API std::string to_dot(const Topology& topology);

/// The same as JSON, indented by two spaces, keys in this order (`?` marks keys that may be absent):
///
///     {"title": text, "order": "parallel" | "serial", "slots": n,
///      "counts": {"fills": n, "dispatches": n, "captured"?: n, "own": n, "edges": n, "redundant_edges": n},
///      "memory": {"requested_bytes": n, "reserved_bytes": n},
///      "allocations": [{"id": n, "kind": text, "label": text, "bytes": n, "offset"?: n}],
///      "nodes": [{"id": n, "kind": text, "role"?: text, "label": text,
///                 "fill"?: {"bytes": n, "value": n} | "copy"?: {"bytes": n} |
///                 "kernel"?: {"symbol": text, "grid": [x, y, z], "block": [x, y, z], "shared_bytes": n,
///                             "late"?: [{"parameter": n, "label": text}]} |
///                 "captured"?: {"name": text, "workspace_bytes": n},
///                 "uses": [{"allocation": n, "label": text, "begin": n, "end": n, "access": text}]}],
///      "edges": [{"from": n, "to": n,
///                 "reasons": [{"kind": text, "allocation"?: n, "label"?: text, "begin"?: n, "end"?: n,
///                              "reused"?: true}], "programmatic"?: true}]}
///
/// A label's bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] WEFT_API std::string to_json(const Topology& topology);

}  // namespace weft
