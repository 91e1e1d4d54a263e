#include "device/registry.h"

#include "catch.h"
#include "device/host/host_device.h"
#include <weft/device.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace weft {
namespace {

TEST_CASE("A device's name is its kind and ordinal", "[device]") {
  CHECK(to_string(Device::cuda()) == "cuda:0");
  CHECK(to_string(Device::host(3)) == "host:3");
}

TEST_CASE("A device is opened once while anybody holds it", "[device]") {
  auto first = open_device(Device::host(1));
  const auto second = open_device(Device::host(1));
  CHECK(first == second);
  CHECK(open_device(Device::host(2)) != first);
}

TEST_CASE("A device that nobody holds is closed", "[device]") {
  const std::weak_ptr<DeviceApi> closed = open_device(Device::host(1));
  CHECK(closed.expired());
  CHECK(open_device(Device::host(1)) != nullptr);
}

TEST_CASE("A scoped device stands under a device's name while it lives", "[device]") {
  const auto before = open_device(Device::host(1));
  const std::shared_ptr<DeviceApi> outer = make_host_device();
  const std::shared_ptr<DeviceApi> inner = make_host_device();
  {
    const ScopedDevice scoped_outer(Device::host(1), outer);
    CHECK(open_device(Device::host(1)) == outer);
    {
      const ScopedDevice scoped_inner(Device::host(1), inner);
      CHECK(open_device(Device::host(1)) == inner);
      CHECK(open_device(Device::host(2)) != inner);
    }
    CHECK(open_device(Device::host(1)) == outer);
  }
  CHECK(open_device(Device::host(1)) == before);
}

TEST_CASE("A GPU can be replaced where there is none", "[device]") {
  const std::shared_ptr<DeviceApi> stand_in = make_host_device();
  const ScopedDevice scoped(Device::cuda(7), stand_in);
  CHECK(open_device(Device::cuda(7)) == stand_in);
}

TEST_CASE("The automatic device is a GPU that opens or else the host device", "[device]") {
  const Device device = Device::automatic();
  const std::optional<Device> gpu = first_usable_gpu();
  CHECK(device == gpu.value_or(Device::host()));
  CHECK(open_device(device) != nullptr);
}

// Meaningful on every machine: where cuda:0 does not open, the reason is one of four sentences, and asking again tells
// the same, for no failure is remembered.
TEST_CASE("A GPU opens or says why it cannot", "[device][R41]") {
  if (first_usable_gpu() == Device::cuda()) {
    CHECK(open_device(Device::cuda())->limits().compute_capability >= 80);
    return;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Error error = test::refusal([] { return open_device(Device::cuda()); });
    INFO(error.what());
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(error.contexts() == std::vector<std::string>{"opening cuda:0"});
    constexpr std::array kReasons = {"no CUDA side", "no CUDA driver library", "finds no GPU", "or newer"};
    CHECK(std::ranges::count_if(kReasons, [&](const char* part) { return test::contains(error.sentence(), part); }) ==
          1);
  }
}

TEST_CASE("A GPU beyond the last is refused", "[device]") {
  const Error error = test::refusal([] { return open_device(Device::cuda(1000)); });
  CHECK(error.code() == ErrorCode::unsupported);
  if (first_usable_gpu()) CHECK(test::contains(error.sentence(), "There is no cuda:1000: the CUDA driver finds "));
}

}  // namespace
}  // namespace weft
