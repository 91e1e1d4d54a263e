#include <weft/contract.h>

namespace weft {

std::string_view to_string(Access access) noexcept {
  switch (access) {
    case Access::read:
      return "read";
    case Access::write:
      return "write";
    case Access::read_write:
      return "read_write";
  }
  return "unknown";
}

std::string_view to_string(Placement placement) noexcept {
  switch (placement) {
    case Placement::device:
      return "device";
    case Placement::shared:
      return "shared";
  }
  return "unknown";
}

std::string_view to_string(ParameterKind kind) noexcept {
  switch (kind) {
    case ParameterKind::binding:
      return "binding";
    case ParameterKind::scalar:
      return "scalar";
    case ParameterKind::index:
      return "index";
    case ParameterKind::bytes:
      return "bytes";
  }
  return "unknown";
}

}  // namespace weft
