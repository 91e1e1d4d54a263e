#include "catch.h"
#include <weft/command.h>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace {

using weft::Access;
using weft::Argument;
using weft::Command;
using weft::ErrorCode;
using weft::Region;
using weft::test::refusal;

template <class T>
T value_of(const weft::Scalar& scalar) {
  REQUIRE(scalar.bytes.size() == sizeof(T));
  T value;
  std::memcpy(&value, scalar.bytes.data(), sizeof(T));
  return value;
}

static_assert(weft::ScalarValue<std::uint32_t> && weft::ScalarValue<double> && weft::ScalarValue<weft::bf16>);
static_assert(!weft::ScalarValue<long double> && !weft::ScalarValue<const int> && !weft::ScalarValue<int*>);
// A host pointer or a flag is no argument, and a fraction is no count.
static_assert(!std::constructible_from<Argument, const float*>);
static_assert(!std::constructible_from<Argument, std::nullptr_t>);
static_assert(!std::constructible_from<Argument, const char*>);
template <class T>
concept Countable = requires(T value) {
  weft::index(value);
  weft::workload(value);
};
static_assert(Countable<int> && Countable<std::uint64_t> && !Countable<float> && !Countable<bool>);

const Region kRegion{.session = 3, .allocation = 1, .offset = 0, .bytes = 128};

TEST_CASE("A scalar keeps the width and the bytes of its type", "[words][command]") {
  CHECK(value_of<std::uint32_t>(weft::Scalar(0x12345678u)) == 0x12345678u);
  CHECK(value_of<double>(weft::Scalar(0.1)) == 0.1);
  CHECK(value_of<weft::f16>(weft::Scalar(weft::f16{0x3c00})).bits == 0x3c00);
  CHECK(weft::Scalar(true).bytes.size() == 1);
  const auto bytes = weft::Scalar(std::uint16_t{0x0102}).bytes;
  REQUIRE(bytes.size() == 2);
  CHECK(bytes[0] == std::byte{2});
}

TEST_CASE("Arguments mix bindings and scalars in one list", "[words][command]") {
  const weft::TypedRegion<float> typed(kRegion, weft::TensorDesc(weft::DType::f32, {32}));
  const std::vector<Argument> arguments = {kRegion.write(),
                                           kRegion,
                                           typed,
                                           32u,
                                           weft::index(7),
                                           weft::indices({1, 2}),
                                           weft::packed(weft::Constants().add(3u).add(1.5f))};
  CHECK(std::get<weft::Binding>(arguments[0].value).access == Access::write);
  CHECK_FALSE(std::get<weft::Binding>(arguments[1].value).access.has_value());
  CHECK(std::get<weft::Binding>(arguments[2].value).region == kRegion);
  CHECK(value_of<unsigned>(std::get<weft::Scalar>(arguments[3].value)) == 32u);
  CHECK(std::get<weft::Index>(arguments[4].value).value == 7);
  CHECK(std::get<weft::Indices>(arguments[5].value).values == std::vector<std::uint64_t>{1, 2});
  const auto& scalars = std::get<weft::Constants>(arguments[6].value).scalars;
  REQUIRE(scalars.size() == 2);
  CHECK(value_of<float>(scalars[1]) == 1.5f);
}

TEST_CASE("A struct passed by value keeps its bytes and its pointers", "[words][command]") {
  struct Shape {
    void* data;
    std::uint32_t rows;
    std::uint32_t columns;
  };
  const auto bytes = weft::bytes(Shape{nullptr, 5, 6}, {{offsetof(Shape, data), kRegion.read()}});
  REQUIRE(bytes.value.size() == sizeof(Shape));
  std::uint32_t columns = 0;
  std::memcpy(&columns, bytes.value.data() + offsetof(Shape, columns), sizeof(columns));
  CHECK(columns == 6);
  REQUIRE(bytes.pointers.size() == 1);
  CHECK(bytes.pointers[0].offset == 0);
  CHECK(bytes.pointers[0].binding.access == Access::read);
}

TEST_CASE("A negative count is refused", "[words][command]") {
  CHECK(weft::workload(32, 128u, std::uint64_t{1} << 40).words ==
        std::vector<std::uint64_t>{32, 128, std::uint64_t{1} << 40});
  CHECK(refusal([] { (void)weft::workload(32, -1); }).sentence() == "The count -1 is negative.");
  CHECK(refusal([] { (void)weft::index(-2); }).code() == ErrorCode::invalid);
}

TEST_CASE("A fill names its region and its byte", "[words][command]") {
  const Command command = weft::fill(kRegion, 0xab).label("clear");
  const auto& fill = std::get<weft::Fill>(command.action());
  CHECK(fill.region == kRegion);
  CHECK(fill.value == 0xab);
  CHECK(command.label() == "clear");
  CHECK(command.after().empty());
}

TEST_CASE("A dispatch keeps kernel and shape and arguments", "[words][command]") {
  const weft::KernelId kernel{.session = 3, .index = 4};
  const Command by_grid = weft::dispatch(kernel, weft::grid(1, 4), {kRegion.read(), 32u});
  const auto& dispatch = std::get<weft::Dispatch>(by_grid.action());
  CHECK(dispatch.kernel == kernel);
  CHECK(std::get<weft::Grid>(dispatch.shape) == weft::Grid{1, 4, 1});
  CHECK(dispatch.arguments.size() == 2);

  const Command by_workload = weft::dispatch(kernel, weft::workload(32), {});
  CHECK(std::get<weft::Workload>(std::get<weft::Dispatch>(by_workload.action()).shape).words ==
        std::vector<std::uint64_t>{32});
}

TEST_CASE("Label and order are set in place as well as in passing", "[words][command]") {
  Command command = weft::fill(kRegion, 0);
  command.label("zero").after({1, 2});
  CHECK(command.label() == "zero");
  CHECK(command.after() == std::vector<std::uint32_t>{1, 2});
  const std::vector<Command> list = {weft::fill(kRegion, 0).after({0}).label("next"), command};
  CHECK(list[0].label() == "next");
  CHECK(list[0].after() == std::vector<std::uint32_t>{0});
}

}  // namespace
