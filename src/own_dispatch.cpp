#include "own_dispatch.h"

#include "device/own_kernels.h"

#include <cstddef>
#include <cstring>

namespace weft {

DispatchOperation own_dispatch(const std::shared_ptr<const LoadedKernel>& kernel, Dim3 grid,
                               const std::vector<std::variant<Location, std::uint64_t>>& arguments) {
  DispatchOperation dispatch{kernel, grid, 0, std::vector<std::byte>(kernel->compiled.parameter_bytes()), {}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& [offset, size, kind] = kernel->compiled.parameters[i];
    if (const auto* place = std::get_if<Location>(&arguments[i])) {
      dispatch.pointers.push_back({offset, *place});
    } else {
      std::memcpy(&dispatch.parameters[offset], &std::get<std::uint64_t>(arguments[i]), size);
    }
  }
  return dispatch;
}

std::vector<ByteUse> copy_uses(const Location& destination, const Location& source, std::uint64_t bytes) {
  return {{source.allocation, source.offset, source.offset + bytes, Access::read},
          {destination.allocation, destination.offset, destination.offset + bytes, Access::write}};
}

void fill_by_kernel(Operation& operation, const std::shared_ptr<const LoadedKernel>& kernel) {
  const FillOperation fill = std::get<FillOperation>(operation.action);
  operation.action =
      own_dispatch(kernel, own::copy_grid(fill.bytes), {fill.destination, fill.bytes, std::uint64_t{fill.value}});
  operation.role = OwnRole::fill_kernel;
}

}  // namespace weft
