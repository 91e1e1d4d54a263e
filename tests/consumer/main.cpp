#include <weft/weft.h>

#include <cstdio>

int main() {
  const weft::Context context = weft::Context::open(weft::Device::host());
  std::printf("weft %s on %s\n", WEFT_VERSION, context.properties().name.c_str());

  // An error that crosses the library's border is caught by its type.
  try {
    static_cast<void>(weft::Context::open(weft::Device::cuda(1'000'000)));
  } catch (const weft::Error& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
