#include "support/device_option.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace weft::tools {

DeviceOption::DeviceOption(CLI::App& app, std::string initial) : name_(std::move(initial)) {
  app.add_option("--device", name_, "Where to run: auto takes the first GPU, else the host device")
      ->check(CLI::IsMember({"auto", "host", "cuda"}))
      ->capture_default_str();
}

Device DeviceOption::choose() const {
  if (name_ == "host") return Device::host();
  if (name_ == "cuda") return Device::cuda();
  const Device device = Device::automatic();
  spdlog::info("--device auto takes {}, {}.", to_string(device),
               device.kind == Device::Kind::cuda ? "the first GPU" : "since there is no GPU that weft can use");
  return device;
}

}  // namespace weft::tools
