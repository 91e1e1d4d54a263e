#include "catch.h"
#include <weft/kernel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

TEST_CASE("A kernel goes by its label or else by its symbol", "[words][kernel]") {
  weft::KernelSpec spec{.symbol = "_Z6linearPf"};
  CHECK(spec.name() == "_Z6linearPf");
  spec.label = "linear";
  CHECK(spec.name() == "linear");
}

TEST_CASE("A grid is one block in each direction that is not given", "[words][kernel]") {
  CHECK(weft::grid(7) == weft::Grid{7, 1, 1});
  CHECK(weft::grid(std::uint64_t{1} << 40, 2, 3) == weft::Grid{std::uint64_t{1} << 40, 2, 3});
}

TEST_CASE("A host reference reads pointers and scalars by position", "[words][kernel]") {
  float data[2] = {1.5f, 2.5f};
  const float* pointer = data;
  const std::uint32_t count = 2;
  const std::array<const std::byte*, 2> parameters = {reinterpret_cast<const std::byte*>(&pointer),
                                                      reinterpret_cast<const std::byte*>(&count)};
  const weft::HostLaunch launch{.parameters = parameters};
  CHECK(launch.get<const float*>(0)[1] == 2.5f);
  CHECK(launch.get<std::uint32_t>(1) == 2);
}

TEST_CASE("A variable of an image is set to the bytes of a value", "[words][kernel]") {
  struct Table {
    std::uint16_t values[2] = {0x0102, 0x0304};
  };
  const weft::ModuleGlobal global = weft::module_global("table", Table{});
  CHECK(global.name == "table");
  CHECK(global.bytes == std::vector<std::byte>{std::byte{2}, std::byte{1}, std::byte{4}, std::byte{3}});
  CHECK(global == weft::module_global("table", Table{}));
  CHECK_FALSE(global == weft::module_global("table", std::uint32_t{0}));
}

}  // namespace
