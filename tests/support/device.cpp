#include "support/device.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace weft::test {

Device test_device() {
  const char* name = std::getenv("WEFT_TEST_DEVICE");
  const std::string device = name == nullptr ? "host" : name;
  if (device == "host") return Device::host();
  if (device == "cuda") return Device::cuda();
  throw std::runtime_error("WEFT_TEST_DEVICE is \"" + device + "\", not host or cuda.");
}

bool on_cuda() { return test_device().kind == Device::Kind::cuda; }

}  // namespace weft::test
