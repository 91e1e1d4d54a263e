#include <weft/weft.h>
#ifdef WITH_CUBLAS
#include <weft/cublas.h>
#endif
#ifdef WITH_NVRTC
#include <weft/nvrtc.h>
#endif

#include <cstdio>

int main() {
  const weft::Context context = weft::Context::open(weft::Device::host());
  std::printf("weft %s on %s\n", WEFT_VERSION, context.properties().name.c_str());

#ifdef WITH_CUBLAS
  static_cast<void>(weft::cublas::Library());
#endif
#ifdef WITH_NVRTC
  if (weft::nvrtc::compile("extern \"C\" __global__ void nothing() {}").bytes().empty()) return 1;
#endif

  // An error that crosses the library's border is caught by its type.
  try {
    static_cast<void>(weft::Context::open(weft::Device::cuda(1'000'000)));
  } catch (const weft::Error& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
