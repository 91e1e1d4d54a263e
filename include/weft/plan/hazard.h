#pragma once

#include <weft/contract.h>
#include <weft/export.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

/// Stands where an edge's reason has no bytes: a stated order, or serial mode.
inline constexpr std::uint32_t kNoAllocation = std::numeric_limits<std::uint32_t>::max();

/// The bytes [begin, end) of one allocation that a command reads, writes or both. Offsets are in bytes.
struct ByteUse {
  std::uint32_t allocation = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Access access = Access::read;

  friend bool operator==(const ByteUse&, const ByteUse&) = default;
};

/// What the planner knows of one command.
struct CommandUses {
  std::vector<ByteUse> uses;         ///< May overlap one another: a command never waits for itself.
  std::vector<std::uint32_t> after;  ///< Positions of earlier commands in the same list.
};

/// Why one command must wait for another.
enum class HazardKind : std::uint8_t {
  read_after_write,
  write_after_read,
  write_after_write,
  stated,  ///< The later command names the earlier one in `after`.
  serial,  ///< Order::serial alone joins the two.
};

/// "raw", "war", "waw", "stated" or "serial".
[[nodiscard]] WEFT_API std::string_view to_string(HazardKind kind) noexcept;

/// One reason of one edge: the bytes [begin, end) of `allocation`, or kNoAllocation and 0, 0 where no bytes are
/// concerned.
struct Reason {
  HazardKind kind = HazardKind::stated;
  std::uint32_t allocation = kNoAllocation;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const Reason&, const Reason&) = default;
};

/// True if the two uses share a byte that one of them writes. An empty range conflicts with nothing.
[[nodiscard]] constexpr bool conflicts(const ByteUse& a, const ByteUse& b) noexcept {
  const bool overlap =
      a.allocation == b.allocation && a.begin < b.end && b.begin < a.end && a.begin < a.end && b.begin < b.end;
  return overlap && (writes(a.access) || writes(b.access));
}

/// For each command of a list the commands that it must follow, ascending and each once.
struct Predecessors {
  std::vector<std::uint32_t> commands;  ///< Those of command 0, then those of command 1, and so on.
  std::vector<std::size_t> offsets{0};  ///< size() + 1 positions in `commands`.
  std::uint64_t steps = 0;              ///< Byte runs looked at: a cost that is the same on every machine.

  /// Number of commands in the list.
  [[nodiscard]] std::size_t size() const noexcept { return offsets.size() - 1; }
  /// Those of one command, which is below size(). Valid as long as this object is unchanged.
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t command) const noexcept {
    return {commands.data() + offsets[command], offsets[command + 1] - offsets[command]};
  }
};

/// Refuses what no order can be inferred from. Thread-safe (pure).
/// Errors: `invalid` if an `after` entry is not the position of an earlier command, if a range ends before it begins,
/// if an allocation is kNoAllocation, or if there are more commands than 32-bit positions.
WEFT_API void validate(std::span<const CommandUses> commands);

/// Infers which commands each command follows: a read follows the last writer of each byte, a write follows the last
/// writer and all readers since, and every command follows those that it names in `after`. Every conflicting pair is
/// joined by a path, but some pairs may be implied by others: `schedule` removes those. Thread-safe (pure). Errors:
/// those of `validate`. Cost: O(uses x log uses + runs touched), where a run is a stretch of bytes with one last writer
/// and the same readers since.
[[nodiscard]] WEFT_API Predecessors infer(std::span<const CommandUses> commands);

/// All reasons why `later` must wait for `earlier`, as maximal ranges sorted by kind, allocation and offset; `stated`
/// adds the stated order. Commands in between are not considered. Empty if the two are unordered. Thread-safe (pure).
[[nodiscard]] WEFT_API std::vector<Reason> reasons(const CommandUses& earlier, const CommandUses& later, bool stated);

}  // namespace weft
