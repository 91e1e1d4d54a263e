#pragma once

#include <weft/export.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// What a command does with the bytes of a region.
enum class Access : std::uint8_t { read, write, read_write };

[[nodiscard]] constexpr bool reads(Access access) noexcept { return access != Access::write; }
[[nodiscard]] constexpr bool writes(Access access) noexcept { return access != Access::read; }
[[nodiscard]] WEFT_API std::string_view to_string(Access access) noexcept;

/// Where an allocation lives.
enum class Placement : std::uint8_t {
  device,  ///< Device memory.
  shared,  ///< Pinned host memory that the device reads and writes over the bus.
};

[[nodiscard]] WEFT_API std::string_view to_string(Placement placement) noexcept;

/// What stands at one position of a kernel's parameter list.
enum class ParameterKind : std::uint8_t {
  binding,  ///< A device pointer to a region.
  scalar,   ///< A value passed as it is; the argument's width must be the parameter's.
  index,    ///< An unsigned count of 4 or 8 bytes; `weft::index(n)` takes the width given here.
  bytes,    ///< A struct passed by value, possibly with device pointers inside.
};

[[nodiscard]] WEFT_API std::string_view to_string(ParameterKind kind) noexcept;

/// One parameter of a kernel, in the kernel's own order.
struct Parameter {
  ParameterKind kind = ParameterKind::scalar;
  std::uint32_t size = 0;          ///< Bytes in the parameter block; 8 for a binding.
  Access access = Access::read;    ///< Bindings: what the kernel does with the region.
  std::uint32_t element_size = 1;  ///< Bindings: bytes of one element.
  /// Bindings, and structs for all pointers inside them: alignment that the kernel needs of a region, in bytes, at most
  /// 256; 0 means `element_size`.
  std::uint32_t alignment = 0;
  std::string name = {};  ///< For messages and the topology.

  /// The alignment that holds, in bytes.
  [[nodiscard]] std::uint32_t required_alignment() const noexcept { return alignment != 0 ? alignment : element_size; }

  friend bool operator==(const Parameter&, const Parameter&) = default;
};

}  // namespace weft
