#include "device/device_api.h"

#include "logging.h"

#include <spdlog/fmt/fmt.h>

namespace weft {

namespace {

ErrorCode error_code(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::not_ready:
      return ErrorCode::busy;
    case StatusCode::out_of_memory:
      return ErrorCode::out_of_memory;
    case StatusCode::unsupported:
      return ErrorCode::unsupported;
    case StatusCode::device_lost:
      return ErrorCode::device_lost;
    // What callers give is validated before it reaches the seam: arguments that the device refuses are weft's own
    // mistake.
    case StatusCode::invalid:
    case StatusCode::internal:
    case StatusCode::ok:
      break;
  }
  return ErrorCode::internal;
}

std::string_view reason(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok:
      return "it answers ok";
    case StatusCode::not_ready:
      return "work is unfinished";
    case StatusCode::invalid:
      return "it refuses the arguments";
    case StatusCode::out_of_memory:
      return "it is out of memory";
    case StatusCode::unsupported:
      return "it does not support this";
    case StatusCode::device_lost:
      return "it is lost";
    case StatusCode::internal:
      return "a rule of its use is broken";
  }
  return "it answers an unknown status";
}

std::string describe_origin(const DeviceStatus& status) {
  if (status.native == 0) return status.detail;
  if (*status.detail == '\0') return fmt::format("code {}", status.native);
  return fmt::format("{}, code {}", status.detail, status.native);
}

std::string sentence(const DeviceStatus& status, std::string_view action) {
  const std::string origin = describe_origin(status);
  return fmt::format("The device cannot {}: {}{}.", action, reason(status.code),
                     origin.empty() ? "" : fmt::format(" ({})", origin));
}

}  // namespace

void check(DeviceStatus status, std::string_view action, std::source_location where) {
  if (status.ok()) return;
  throw Error(error_code(status.code), sentence(status, action), where);
}

void log_swallowed(DeviceStatus status, std::string_view action) noexcept {
  if (status.ok() || status.code == StatusCode::device_lost) return;
  log(LogLevel::warning, "device", [&] { return sentence(status, action); });
}

void log_lost(std::string_view name, DeviceStatus status) noexcept {
  log(LogLevel::error, name, [&] {
    return fmt::format("The device {} is lost ({}); nothing more runs on it in this process.", name,
                       describe_origin(status));
  });
}

std::uint64_t CompiledKernel::parameter_bytes() const noexcept {
  if (parameters.empty()) return 0;
  return std::uint64_t{parameters.back().offset} + parameters.back().size;
}

}  // namespace weft
