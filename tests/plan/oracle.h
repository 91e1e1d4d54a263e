#pragma once

#include <weft/plan/hazard.h>
#include <weft/plan/schedule.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {

inline constexpr Access kRead = Access::read;
inline constexpr Access kWrite = Access::write;
inline constexpr Access kBoth = Access::read_write;

/// A command without stated orders.
[[nodiscard]] inline CommandUses uses(std::vector<ByteUse> list) { return {std::move(list), {}}; }

/// (earlier, later).
using Pair = std::pair<std::uint32_t, std::uint32_t>;

/// A square table of true and false.
class Relation {
 public:
  explicit Relation(std::size_t size) : size_(size), cells_(size * size, false) {}
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool holds(std::size_t a, std::size_t b) const { return cells_[a * size_ + b]; }
  void set(std::size_t a, std::size_t b) { cells_[a * size_ + b] = true; }
  [[nodiscard]] std::size_t count() const;

 private:
  std::size_t size_;
  std::vector<bool> cells_;
};

/// Every pair of commands that must not change places: compares each two uses byte by byte, and takes stated orders.
[[nodiscard]] Relation required_orders(std::span<const CommandUses> commands);

/// Who is reached from whom (Floyd and Warshall).
[[nodiscard]] Relation closure(std::size_t commands, std::span<const Pair> edges);

/// What is wrong with `edges` as the order of `commands`, or nothing: an edge that no requirement asks for, a
/// requirement without a path, or an edge that the others imply.
[[nodiscard]] std::optional<std::string> find_fault(std::span<const CommandUses> commands, std::span<const Pair> edges);

/// The reasons of one pair, byte by byte; for ranges below `bytes`.
[[nodiscard]] std::vector<Reason> byte_reasons(const CommandUses& earlier, const CommandUses& later, bool stated,
                                               std::uint64_t bytes);

/// Needed pairs of `commands` on ranges below `bytes`: a last writer and readers for each byte, then dense ancestor
/// sets.
[[nodiscard]] std::vector<Pair> exact_edges(std::span<const CommandUses> commands, std::uint32_t allocations,
                                            std::uint64_t bytes);

[[nodiscard]] std::vector<Pair> edges_of(const Schedule& schedule);

/// A program of a few commands on a few bytes of a few allocations, with empty ranges, overlaps in one command and
/// stated orders.
[[nodiscard]] std::vector<CommandUses> random_program(std::mt19937& random, std::uint64_t bytes);

}  // namespace weft::test
