#include <weft/command.h>
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

namespace weft {

void detail::refuse_negative_count(std::int64_t value) {
  throw Error(ErrorCode::invalid, fmt::format("The count {} is negative.", value));
}

}  // namespace weft
