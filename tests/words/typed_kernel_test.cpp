#include "catch.h"
#include <weft/typed_kernel.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

namespace {

using weft::Access;
using weft::Binding;
using weft::In;
using weft::InOut;
using weft::Kernel;
using weft::Out;
using weft::ParameterKind;
using weft::Region;
using weft::TypedRegion;

using Scale = Kernel<In<float>, Out<float>, float, std::uint32_t>;
using Floats = TypedRegion<float>;
using Ints = TypedRegion<std::int32_t>;

template <class... A>
inline constexpr bool kCallable = std::invocable<const Scale&, weft::Grid, A...>;

static_assert(kCallable<Floats&, const Floats&, float, std::uint32_t>);
static_assert(kCallable<Floats, Floats&, const float&, const std::uint32_t>);
static_assert(std::invocable<const Scale&, weft::Workload, Floats&, Floats&, float, std::uint32_t>);
// Arity.
static_assert(kCallable<Floats&, Floats&, weft::LateScalar<float>&, const weft::LateScalar<std::uint32_t>>);
static_assert(!kCallable<Floats&, Floats&, weft::LateScalar<double>, std::uint32_t>);
static_assert(!kCallable<Floats&, Floats&, float, weft::LateScalar<std::int32_t>>);
static_assert(!kCallable<weft::LateScalar<float>, Floats&, float, std::uint32_t>);

static_assert(!kCallable<Floats&, Floats&, float>);
static_assert(!kCallable<Floats&, Floats&, float, std::uint32_t, std::uint32_t>);
static_assert(!kCallable<>);
// Width, sign and kind of scalars.
static_assert(!kCallable<Floats&, Floats&, double, std::uint32_t>);
static_assert(!kCallable<Floats&, Floats&, float, std::int32_t>);
static_assert(!kCallable<Floats&, Floats&, float, std::uint64_t>);
static_assert(!kCallable<Floats&, Floats&, int, std::uint32_t>);
static_assert(!kCallable<Floats&, Floats&, float, bool>);
static_assert(!kCallable<Floats&, Floats&, float, Floats&>);
// Element type of regions.
static_assert(!kCallable<Ints&, Floats&, float, std::uint32_t>);
static_assert(!kCallable<Floats&, Ints&, float, std::uint32_t>);
static_assert(!kCallable<Floats&, float*, float, std::uint32_t>);
static_assert(!kCallable<Floats&, float, float, std::uint32_t>);
// What carries no type is left to the fragment's checks.
static_assert(kCallable<Region&, Binding, float, std::uint32_t>);

struct Holder {
  Floats region;
  operator Floats() const { return region; }
};
static_assert(kCallable<Holder&, Holder, float, std::uint32_t>);

template <class... Names>
concept NamesScale = requires(const char* name) {
  weft::parameters<In<float>, std::uint32_t>({Names{}...});
};
static_assert(NamesScale<const char*, const char*>);
static_assert(!NamesScale<const char*> && !NamesScale<const char*, const char*, const char*>);

static_assert(std::is_convertible_v<Scale, weft::KernelId>);
static_assert(!std::is_convertible_v<weft::KernelId, Scale>);

TEST_CASE("A signature gives the parameters of its kernel", "[words][typed_kernel]") {
  const std::vector<weft::Parameter> parameters =
      weft::parameters<In<float>, Out<weft::bf16>, InOut<double>, float, std::uint64_t>(
          {"x", "y", "sum", "factor", "count"});
  REQUIRE(parameters.size() == 5);
  CHECK(parameters[0] ==
        weft::Parameter{
            .kind = ParameterKind::binding, .size = 8, .access = Access::read, .element_size = 4, .name = "x"});
  CHECK(parameters[1].access == Access::write);
  CHECK(parameters[1].element_size == 2);
  CHECK(parameters[2].access == Access::read_write);
  CHECK(parameters[2].required_alignment() == 8);
  CHECK(parameters[3] == weft::Parameter{.kind = ParameterKind::scalar, .size = 4, .name = "factor"});
  CHECK(parameters[4] == weft::Parameter{.kind = ParameterKind::scalar, .size = 8, .name = "count"});
}

TEST_CASE("A typed call makes the dispatch that the untyped form makes", "[words][typed_kernel]") {
  const Scale scale(weft::KernelId{.session = 3, .index = 4});
  const Floats x(Region{3, 1, 0, 128}, weft::TensorDesc(weft::DType::f32, {32}));
  const Floats y(Region{3, 2, 0, 128}, weft::TensorDesc(weft::DType::f32, {32}));
  const weft::Command command = scale(weft::workload(32), x, Holder{y}, 0.5f, 32u);
  const auto& dispatch = std::get<weft::Dispatch>(command.action());
  CHECK(dispatch.kernel == scale.id());
  CHECK(std::get<weft::Workload>(dispatch.shape).words == std::vector<std::uint64_t>{32});
  REQUIRE(dispatch.arguments.size() == 4);
  CHECK(std::get<Binding>(dispatch.arguments[0].value).region == Region{3, 1, 0, 128});
  CHECK(std::get<Binding>(dispatch.arguments[1].value).region == Region{3, 2, 0, 128});
  CHECK(std::get<weft::Scalar>(dispatch.arguments[2].value).bytes == weft::Scalar(0.5f).bytes);
  CHECK(std::get<weft::Scalar>(dispatch.arguments[3].value).bytes.size() == 4);
}

}  // namespace
