#pragma once

#include <weft/plan/hazard.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

/// The bytes [begin, end) of one allocation; never empty in a summary.
struct ByteRange {
  std::uint32_t allocation = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What each command of a list reads and what it writes: ranges sorted by allocation and offset, disjoint, no two
/// touching.
class AccessSummary {
 public:
  AccessSummary() = default;
  explicit AccessSummary(std::span<const CommandUses> commands);

  void add(const CommandUses& command);

  [[nodiscard]] std::span<const ByteRange> reads(std::size_t command) const noexcept { return set(2 * command); }
  [[nodiscard]] std::span<const ByteRange> writes(std::size_t command) const noexcept { return set(2 * command + 1); }
  /// The ranges of all commands: reads of the first, writes of the first, reads of the second, and so on.
  [[nodiscard]] std::span<const ByteRange> ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::size_t size() const noexcept { return offsets_.size() / 2; }

 private:
  [[nodiscard]] std::span<const ByteRange> set(std::size_t index) const noexcept {
    return {ranges_.data() + offsets_[index], offsets_[index + 1] - offsets_[index]};
  }
  void add_set(const CommandUses& command, bool (*selects)(Access));

  std::vector<ByteRange> ranges_;
  std::vector<std::size_t> offsets_{0};
};

}  // namespace weft
