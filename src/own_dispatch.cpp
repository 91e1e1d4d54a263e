#include "own_dispatch.h"

#include "device/own_kernels.h"

#include <cstddef>
#include <utility>

namespace weft {

DispatchOperation own_dispatch(const std::shared_ptr<const LoadedKernel>& kernel, Dim3 grid,
                               const std::vector<std::variant<Location, std::uint64_t>>& arguments) {
  std::vector<std::uint64_t> values(arguments.size(), 0);
  std::vector<PointerSlot> pointers;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (const auto* place = std::get_if<Location>(&arguments[i])) {
      pointers.push_back({kernel->compiled.parameters[i].offset, *place});
    } else {
      values[i] = std::get<std::uint64_t>(arguments[i]);
    }
  }
  return {kernel, grid, 0, parameter_block(kernel->compiled, values), std::move(pointers)};
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
