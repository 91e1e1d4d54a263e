#pragma once

#include "serving/batcher.h"
#include <weft/device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace weft::serving {

struct ServerOptions {
  std::filesystem::path data;  ///< Folder with digits.safetensors.
  std::uint16_t port = 0;      ///< Of 127.0.0.1; 0 takes a free one.
  std::vector<std::uint32_t> batches{1, 8, 32};
  std::uint32_t slots = 2;  ///< Of each batch size.
  /// A batch that runs so long never ends. Far above what one takes, with all else that the GPU does; its requests wait
  /// so long for their 500.
  std::chrono::seconds hang_after{10};
  BatcherOptions batching = {};
};

/// Serves until SIGTERM or SIGINT, answers what it has accepted, and says what it has done. Prints `listening
/// 127.0.0.1:<port>` when it is ready. Returns the program's status. Errors: `io`; those of weft.
int serve(const Device& device, const ServerOptions& options);

}  // namespace weft::serving
