#pragma once

#include <weft/region.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

struct CUstream_st;

namespace weft {

/// What a captured call works with: one slot's addresses.
struct CapturedCall {
  CUstream_st* stream = nullptr;         ///< A `cudaStream_t` to enqueue everything on; null on the host device.
  std::span<void* const> bindings = {};  ///< The address of each binding, in the command's order.
  void* workspace = nullptr;             ///< Private to the slot; null for 0 bytes.
  std::uint64_t workspace_bytes = 0;

  /// The address of binding `index` as the pointer type that the library takes.
  template <class Pointer>
  [[nodiscard]] Pointer get(std::size_t index) const noexcept {
    return static_cast<Pointer>(bindings[index]);
  }
};

/// A call of a library as a command: what it enqueues on a stream is recorded once a slot, and its nodes become nodes
/// of the slot's graph between those that the bindings order it behind and before. Made by `weft::captured` of
/// weft/cuda.h, which also sees errors of the CUDA runtime that the call drops.
struct Captured {
  std::string name = {};               ///< For messages and the topology.
  std::vector<Binding> bindings = {};  ///< Each must say its access: no spec describes the call.
  std::uint64_t workspace_bytes =
      0;  ///< Scratch of the call, undefined at its start; calls in order take turns with it.

  /// Calls of one name and identity do the same work: a PlanCache takes models that differ in nothing else for one.
  /// Empty: the same as no other.
  std::string identity = {};

  /// Enqueues the work. Called once a slot (again where a thread that synchronized the device has spoilt
  /// the recording), by the thread that prepares and under a capture of that thread alone, with
  /// the context current. It must enqueue something, all of it on the call's stream or on streams that are joined to
  /// it again, and must not allocate, synchronise, or keep the addresses. What it throws is the refusal's cause. What
  /// its nodes use beside the bindings (handles, plans) must live as long as the command, which the prepared model
  /// keeps. Like the other functions it must own nothing that keeps a context of weft, which keeps the command until
  /// its last run has drained: neither would go.
  std::function<void(const CapturedCall&)> enqueue = {};

  /// Called before the first recording of every prepare, outside any capture, with the context current: to create
  /// handles and to load code that must not be loaded in a capture. The host device does not call it. May be empty.
  std::function<void()> load = {};

  /// The same work on the host, which the host device runs as one node. It must not throw. Without it the command plans
  /// and validates there, and running it is `unsupported`.
  std::function<void(const CapturedCall&)> host = {};

  /// Answers the code of the last error of the CUDA runtime that `enqueue` was compiled with, or 0, and with `take`
  /// clears it; `text` becomes its description. May be empty: errors that the call drops are then not seen.
  int (*last_error)(bool take, const char*& text) = nullptr;
};

}  // namespace weft
