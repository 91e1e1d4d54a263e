#pragma once

#include <weft/export.h>
#include <weft/model.h>
#include <weft/prepared.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// What a plan is made of, as named parts: two keys are equal when all their parts are, byte for byte. Content, never
/// addresses: fragments built anew from the same definition have the same key.
///
/// A plain value. It takes about as many bytes as the description of the fragment.
class WEFT_API PlanKey {
 public:
  PlanKey() = default;

  /// Of a fragment and how it is prepared: its definition (which a process has once), each command's kernel, grid,
  /// shared memory, parameters, regions and order, the inputs and outputs with their descriptors, and every option.
  /// Labels are no part of it. Cost: a pass over the commands.
  [[nodiscard]] static PlanKey of(const ModelFragment& fragment, const PrepareOptions& options = {});

  /// Adds a part: `PlanKey().add("model", "chat").add("batch", 32)`.
  PlanKey& add(std::string_view part, std::string_view value) &;
  PlanKey& add(std::string_view part, std::uint64_t value) &;
  PlanKey&& add(std::string_view part, std::string_view value) && { return std::move(add(part, value)); }
  PlanKey&& add(std::string_view part, std::uint64_t value) && { return std::move(add(part, value)); }

  /// For messages; no part of the key.
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  PlanKey& set_label(std::string label) &;

  /// How many parts are the same at the same place, and the name of the first that is not; empty for equal keys.
  struct Likeness {
    std::uint64_t equal_parts = 0;
    std::string first_difference;
  };
  [[nodiscard]] Likeness compare(const PlanKey& other) const;

  /// All of it, in a form that only compares.
  [[nodiscard]] const std::string& content() const noexcept { return content_; }
  friend bool operator==(const PlanKey& a, const PlanKey& b) noexcept { return a.content_ == b.content_; }

 private:
  std::string content_;  // Of each part: two lengths, the name, the value.
  std::string label_;
};

}  // namespace weft
