#include "device/cuda/primary_context.h"

#include <spdlog/fmt/fmt.h>

namespace weft::cuda {

PrimaryContext::PrimaryContext(const Driver& driver, std::uint32_t ordinal)
    : driver_(driver), name_(fmt::format("cuda:{}", ordinal)) {
  if (ordinal >= driver.device_count) {
    throw Error(ErrorCode::unsupported, fmt::format("There is no cuda:{}: the CUDA driver finds {} GPU{}.", ordinal,
                                                    driver.device_count, driver.device_count == 1 ? "" : "s"));
  }
  const DriverScope scope(&driver_, nullptr);  // For the capture mode: there is no context yet.
  check(call(driver_.DeviceGet, &device_, static_cast<int>(ordinal)), "be found");
  check(call(driver_.DevicePrimaryCtxRetain, &context_, device_), "retain its primary context");
}

PrimaryContext::~PrimaryContext() {
  const DriverScope scope = enter();
  static_cast<void>(call(driver_.DevicePrimaryCtxRelease, device_));
}

DeviceStatus PrimaryContext::health() const noexcept {
  if (const DeviceStatus status = process_status(); !status.ok()) return status;
  const int code = lost_.load(std::memory_order_relaxed);
  return code == 0 ? DeviceStatus{} : to_status(static_cast<CUresult>(code), "");
}

DeviceStatus PrimaryContext::failed(CUresult result, const char* call) noexcept {
  const DeviceStatus status = to_status(result, call);
  if (status.code == StatusCode::device_lost) {
    int healthy = 0;
    if (lost_.compare_exchange_strong(healthy, result, std::memory_order_relaxed)) log_lost(name_, status);
  }
  return status;
}

}  // namespace weft::cuda
