#include "machine.h"

#if WEFT_CUDA
#include "gpu.h"
#endif

#include <spdlog/fmt/fmt.h>

#include <fstream>
#include <thread>

namespace weft::bench {

namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Facts describe_machine(const Context& context) {
  Facts facts{
      {"weft", WEFT_VERSION},
      {"build", WEFT_BUILD_TYPE},
      {"compiler", __VERSION__},
      {"cpu", fmt::format("{}, {} threads", processor_name(), std::thread::hardware_concurrency())},
  };
  if (context.device().kind == Device::Kind::host) {
    facts.emplace_back("device", "host device (not a GPU)");
    return facts;
  }
#if WEFT_CUDA
  const Facts gpu = describe_gpu(context);
  facts.insert(facts.end(), gpu.begin(), gpu.end());
#endif
  return facts;
}

}  // namespace weft::bench
