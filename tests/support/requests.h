#pragma once

#include "runtime/memory_work.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <cstdint>
#include <vector>

// Requests in every form, for tests of what a pool makes of them.

namespace weft::test {

inline constexpr RequestForm kHostHost{Side::host, Side::host};
inline constexpr RequestForm kHostDevice{Side::host, Side::device};
inline constexpr RequestForm kDeviceHost{Side::device, Side::host};
inline constexpr RequestForm kDeviceDevice{Side::device, Side::device};
/// In the order of their numbers as two bits.
[[nodiscard]] std::vector<RequestForm> all_forms();

/// A tensor of bytes whose values are there.
[[nodiscard]] DeviceTensor ready(const Context& context, const std::vector<std::uint8_t>& values);

/// Starts a request of one input of bytes on a slot that must be free within a minute; for a device form, the bytes are
/// uploaded first.
[[nodiscard]] Inference start(PreparedModel& pool, RequestForm form, const std::vector<std::uint8_t>& input,
                              std::vector<DeviceTensor> into = {});
/// Waits for output 0, and downloads it where the form leaves it on the device.
[[nodiscard]] std::vector<std::uint8_t> answer(Inference& run, RequestForm form);

}  // namespace weft::test
