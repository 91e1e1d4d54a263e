#pragma once

#include <weft/contract.h>
#include <weft/export.h>
#include <weft/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace weft {

struct Binding;

/// How an allocation is asked for.
struct AllocationOptions {
  std::string label = {};  ///< For messages and the topology.
  Placement placement = Placement::device;
};

/// A byte range of one allocation of one session. A plain handle: it borrows nothing and is checked at every use.
struct WEFT_API Region {
  std::uint64_t session = 0;     ///< Id of the session that made it; never reused in a process.
  std::uint32_t allocation = 0;  ///< Index of the allocation in its session.
  std::uint64_t offset = 0;      ///< Bytes from the start of the allocation.
  std::uint64_t bytes = 0;

  /// A part of this region, `from` and `size` in bytes. Errors: `invalid` when it leaves this region.
  [[nodiscard]] Region slice(std::uint64_t from, std::uint64_t size) const;

  [[nodiscard]] Binding read() const noexcept;
  [[nodiscard]] Binding write() const noexcept;
  [[nodiscard]] Binding read_write() const noexcept;

  friend bool operator==(const Region&, const Region&) = default;
};

/// A region as an argument, with what the command does to it where the call says so.
struct Binding {
  Region region = {};
  std::optional<Access> access = {};  ///< Empty: the kernel's spec decides. Given: it must not contradict the spec.
};

inline Binding Region::read() const noexcept { return {*this, Access::read}; }
inline Binding Region::write() const noexcept { return {*this, Access::write}; }
inline Binding Region::read_write() const noexcept { return {*this, Access::read_write}; }

/// A region and the tensor that its leading bytes hold.
struct TensorRegion : Region {
  TensorDesc desc;

  TensorRegion(Region region, TensorDesc description) : Region(region), desc(std::move(description)) {}
};

namespace detail {
// Typed host spans are made from typed regions, so a wrong element type would read past the end.
WEFT_API void require_dtype(const TensorDesc& desc, DType dtype);
}  // namespace detail

/// A TensorRegion whose element type is known to the compiler.
template <Element T>
struct TypedRegion : TensorRegion {
  /// Errors: `invalid` when the tensor's element type is not T.
  TypedRegion(Region region, TensorDesc description) : TensorRegion(region, std::move(description)) {
    detail::require_dtype(desc, DTypeOf<T>::value);
  }
};

}  // namespace weft
