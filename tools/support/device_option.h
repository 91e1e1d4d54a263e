#pragma once

#include <weft/device.h>

#include <CLI/CLI.hpp>

#include <string>

namespace weft::tools {

/// `--device auto|host|cuda`.
class DeviceOption {
 public:
  /// Adds the option, which is `initial` when it is not given. This object must live while the command line is read.
  DeviceOption(CLI::App& app, std::string initial);
  DeviceOption(const DeviceOption&) = delete;
  DeviceOption& operator=(const DeviceOption&) = delete;

  /// The device that was asked for. Of `auto` it says, in one line on the error stream, what that took.
  [[nodiscard]] Device choose() const;

 private:
  std::string name_;
};

}  // namespace weft::tools
