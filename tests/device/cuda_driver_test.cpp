#include "catch.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/driver.h"

#include <algorithm>
#include <string>
#include <utility>

// What is decided of the driver without one.

namespace weft::cuda {
namespace {

using enum StatusCode;

TEST_CASE("Each driver code has its status", "[device]") {
  const auto [native, code] = GENERATE(table<int, StatusCode>({
      {0, ok},
      {1, invalid},        // CUDA_ERROR_INVALID_VALUE
      {2, out_of_memory},  // not sticky
      {4, device_lost},    // the driver shuts down
      {34, unsupported},   // stub library
      {36, unsupported},   // newer driver needed
      {46, unsupported},   // exclusive compute mode
      {100, unsupported},  // no device
      {101, invalid},      // no such ordinal
      {200, invalid},      // not an image
      {201, internal},     // no current context: weft's own mistake
      {209, unsupported},  // no code for this GPU
      {214, device_lost},  // ECC
      {218, invalid},      // no valid PTX; seen for text that is none
      {220, device_lost},  // NVLink
      {221, unsupported},
      {222, unsupported},
      {223, unsupported},
      {226, device_lost},  // contained
      {300, invalid},
      {400, invalid},
      {401, invalid},
      {500, invalid},
      {600, not_ready},
      {700, device_lost},  // illegal address
      {701, invalid},      // shape of one launch
      {702, device_lost},  // launch timeout
      {709, device_lost},  // primary context reset
      {710, device_lost},  // assert
      {714, device_lost},
      {715, device_lost},
      {716, device_lost},
      {717, device_lost},
      {718, device_lost},
      {719, device_lost},  // trap
      {720, invalid},      // shape of one launch
      {721, device_lost},
      {800, invalid},
      {801, unsupported},
      {802, unsupported},
      {803, unsupported},
      {804, unsupported},
      {805, unsupported},
      {810, device_lost},
      {900, invalid},
      {901, invalid},
      {910, invalid},
      {911, device_lost},
      {912, invalid},
      {914, invalid},
      {915, invalid},
      {999, internal},  // unknown: not known to stay
      {12345, internal},
  }));
  INFO("driver code " << native);
  const DeviceStatus status = to_status(static_cast<CUresult>(native), "cuCall");
  CHECK(status.code == code);
  CHECK(status.native == native);
  CHECK(status.detail != nullptr);
}

TEST_CASE("A sticky code says what happened and others name the call", "[device]") {
  for (const StatusRule& rule : status_table()) {
    INFO("driver code " << rule.native);
    if (rule.code == device_lost) CHECK(rule.detail != nullptr);
    if (rule.detail == nullptr) CHECK(to_status(rule.native, "cuCall").detail == std::string("cuCall"));
  }
  CHECK(to_status(CUDA_ERROR_UNKNOWN, "cuCall").detail == std::string("cuCall"));
}

TEST_CASE("An image without code for the GPU is unsupported and says so", "[device]") {
  const Error error =
      test::refusal([] { check(to_status(CUDA_ERROR_NO_BINARY_FOR_GPU, "cuLibraryLoadData"), "load x"); });
  CHECK(error.code() == ErrorCode::unsupported);
  CHECK(test::contains(error.sentence(), "the image has no code for this GPU"));
}

TEST_CASE("Each way to have no GPU has its own sentence", "[device][R41]") {
  constexpr int kNoDevice = 100;
  constexpr int kInsufficientDriver = 35;
  const auto reason = [](DriverPresence presence) { return why_unusable(presence).value_or(""); };

  CHECK(reason({.version = 0, .error = kInsufficientDriver}) ==
        "There is no CUDA driver library (libcuda.so.1) on this machine, so no GPU can be used.");
  CHECK(test::contains(reason({.version = 12040, .device_count = 1}),
                       "supports CUDA 12.4, and this build of weft needs CUDA 1"));
  CHECK(test::contains(reason({.version = 12080, .error = kInsufficientDriver}), "supports CUDA 12.8, and this build"));
  CHECK(test::contains(reason({.version = 13000, .error = kNoDevice}), "finds no GPU on this machine"));
  CHECK(test::contains(reason({.version = 13000, .device_count = 0}), "finds no GPU on this machine"));
  CHECK(reason({.version = 13000, .error = 999, .error_text = "unknown error"}) ==
        "The CUDA driver does not start: unknown error (error 999).");
  CHECK(reason({.version = 13000, .device_count = 2}).empty());
}

}  // namespace
}  // namespace weft::cuda
