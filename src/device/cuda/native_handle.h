#pragma once

#include <cstdint>

namespace weft::cuda {

// A handle of the seam is the driver's pointer, or that of weft's record beside it.

template <class Pointer, class Handle>
[[nodiscard]] Pointer native(Handle handle) noexcept {
  return reinterpret_cast<Pointer>(static_cast<std::uintptr_t>(handle));
}

template <class Handle, class Object>
[[nodiscard]] Handle to_handle(Object* object) noexcept {
  return static_cast<Handle>(reinterpret_cast<std::uintptr_t>(object));
}

}  // namespace weft::cuda
