#pragma once

#include <weft/device.h>

namespace weft::test {

/// The device that the behaviour suite runs on: WEFT_TEST_DEVICE is "host" (the default) or "cuda".
[[nodiscard]] Device test_device();

[[nodiscard]] bool on_cuda();

}  // namespace weft::test
