#include "loaded_kernel.h"

#include "catch.h"
#include "device/device_decorator.h"
#include "device/host/host_device.h"

#include <string>
#include <utility>
#include <vector>

namespace weft::test {

namespace {

using Kind = CompiledKernel::ParameterLayout::Kind;

/// A device whose code tells what its kernels' parameters are.
class TellingDevice final : public DeviceDecorator {
 public:
  explicit TellingDevice(std::vector<Kind> kinds) : DeviceDecorator(make_host_device()), kinds_(std::move(kinds)) {}

  DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                           CompiledKernel& compiled) noexcept override {
    const DeviceStatus status = DeviceDecorator::find_kernel(module, spec, kernel, compiled);
    for (std::size_t i = 0; i < compiled.parameters.size(); ++i) compiled.parameters[i].kind = kinds_[i];
    return status;
  }

 private:
  std::vector<Kind> kinds_;
};

Parameter parameter(ParameterKind kind, std::uint32_t size, std::string name) {
  return {.kind = kind, .size = size, .name = std::move(name)};
}

/// The kernel that a spec of these parameters loads where the code tells `kinds`.
std::shared_ptr<const LoadedKernel> load(std::vector<Parameter> parameters, std::vector<Kind> kinds) {
  const auto device = std::make_shared<TellingDevice>(std::move(kinds));
  const KernelSpec spec{.image = {.label = "code"}, .symbol = "k", .parameters = std::move(parameters)};
  return load_kernel(*device, load_module(device, spec.image), spec);
}

}  // namespace

TEST_CASE("A binding where the code takes a value is refused", "[runtime]") {
  const Error error = refusal([] {
    static_cast<void>(load({parameter(ParameterKind::binding, 8, "x"), parameter(ParameterKind::binding, 8, "stride")},
                           {Kind::pointer, Kind::value}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The spec makes parameter 1 (\"stride\") a binding; the compiled kernel takes a value there and no pointer.");
  REQUIRE(error.contexts().size() == 1);
  CHECK(error.contexts().front() == "loading kernel \"k\"");
}

TEST_CASE("An index or a struct where the code takes a pointer is refused", "[runtime]") {
  const auto sentence = [](ParameterKind kind) {
    return refusal([&] { static_cast<void>(load({parameter(kind, 8, "x")}, {Kind::pointer})); }).sentence();
  };
  CHECK(sentence(ParameterKind::index) ==
        "The spec makes parameter 0 (\"x\") an index; the compiled kernel takes a pointer there.");
  CHECK(sentence(ParameterKind::bytes) ==
        "The spec makes parameter 0 (\"x\") a struct passed by value; the compiled kernel takes a pointer there.");
}

TEST_CASE("A scalar where the code takes a pointer takes null alone", "[runtime]") {
  const auto kernel = load({parameter(ParameterKind::binding, 8, "x"), parameter(ParameterKind::scalar, 8, "scratch"),
                            parameter(ParameterKind::scalar, 8, "n"), parameter(ParameterKind::scalar, 8, "m")},
                           {Kind::pointer, Kind::pointer, Kind::value, Kind::unknown});
  CHECK_FALSE(takes_null_only(*kernel, 0));
  CHECK(takes_null_only(*kernel, 1));
  CHECK_FALSE(takes_null_only(*kernel, 2));
  CHECK_FALSE(takes_null_only(*kernel, 3));
}

TEST_CASE("Any kind is taken where the code does not tell", "[runtime]") {
  for (const ParameterKind kind :
       {ParameterKind::binding, ParameterKind::scalar, ParameterKind::index, ParameterKind::bytes}) {
    CHECK_NOTHROW(load({parameter(kind, 8, "x")}, {Kind::unknown}));
  }
  for (const ParameterKind kind : {ParameterKind::scalar, ParameterKind::index, ParameterKind::bytes})
    CHECK_NOTHROW(load({parameter(kind, 8, "x")}, {Kind::value}));
}

}  // namespace weft::test
