#pragma once

#include <weft/deadline.h>
#include <weft/prepared.h>

#include <cstdint>
#include <span>
#include <vector>

// The examples of docs/migrating.md: one piece of work by hand, as a model, as a stage of somebody's stream, and as a
// graph without weft.

namespace weft::test {

/// The energy of a signal: what each value has of the whole, and how many have more than twice the average.
struct Shares {
  std::vector<float> share;
  std::uint32_t large = 0;

  friend bool operator==(const Shares&, const Shares&) = default;
};

using Signals = std::vector<std::vector<std::uint8_t>>;

[[nodiscard]] std::vector<Shares> shares_by_hand(const Signals& signals);
[[nodiscard]] PreparedModel shares_model(const Context& context, std::uint32_t count, PrepareOptions options);
[[nodiscard]] Shares shares_of(PreparedModel& model, std::span<const float> x, Deadline deadline);
/// As a stage between a kernel and a copy on a stream of CUDA's; the host waits once, behind all signals.
[[nodiscard]] std::vector<Shares> staged_shares(const PreparedModel& model, const Signals& signals);
/// By the CUDA runtime, on the graph that the model was left with.
[[nodiscard]] Shares shares_without_weft(const PreparedModel& model, const ModelSlot& slot, std::span<const float> x);

}  // namespace weft::test
