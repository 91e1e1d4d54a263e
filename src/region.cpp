#include "checked_math.h"
#include <weft/error.h>
#include <weft/region.h>

#include <spdlog/fmt/fmt.h>

namespace weft {

Region Region::slice(std::uint64_t from, std::uint64_t size) const {
  const auto end = checked_add(from, size);
  if (!end || *end > bytes) {
    throw Error(ErrorCode::invalid,
                fmt::format("The slice of {} bytes at byte {} leaves its region of {} bytes.", size, from, bytes));
  }
  const auto start = checked_add(offset, from);
  if (!start)
    throw Error(ErrorCode::invalid,
                fmt::format("The slice at byte {} of a region at byte {} is beyond 64 bits.", from, offset));
  return {session, allocation, *start, size};
}

void detail::require_dtype(const TensorDesc& desc, DType dtype) {
  if (desc.dtype() == dtype) return;
  throw Error(ErrorCode::invalid, fmt::format("The tensor {} does not have the element type {} of its region.",
                                              to_string(desc), to_string(dtype)));
}

}  // namespace weft
