#include "loaded_kernel.h"

#include "catch.h"
#include "device/device_decorator.h"
#include "device/host/host_device.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {

namespace {

using Kind = CompiledKernel::ParameterLayout::Kind;

/// A device whose code is compiled for clusters.
class ClusteredDevice final : public DeviceDecorator {
 public:
  ClusteredDevice(bool needs_cluster, std::optional<Dim3> cluster)
      : DeviceDecorator(make_host_device()), needs_cluster_(needs_cluster), cluster_(cluster) {}

  DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                           CompiledKernel& compiled) noexcept override {
    const DeviceStatus status = DeviceDecorator::find_kernel(module, spec, kernel, compiled);
    compiled.needs_cluster = needs_cluster_;
    compiled.cluster = cluster_;
    return status;
  }

 private:
  bool needs_cluster_;
  std::optional<Dim3> cluster_;
};

/// A device whose images have one variable, "table" of 12 bytes.
class VariableDevice final : public DeviceDecorator {
 public:
  VariableDevice() : DeviceDecorator(make_host_device()) {}

  DeviceStatus find_global(ModuleHandle, const std::string& name, GlobalVariable& variable) noexcept override {
    if (name != "table") return {StatusCode::invalid, 0, "the image has no such symbol"};
    variable = {0x1000, 12};
    return {};
  }
};

/// A device whose compiler refuses everything.
class RefusingDevice final : public DeviceDecorator {
 public:
  explicit RefusingDevice(StatusCode code) : DeviceDecorator(make_host_device()), code_(code) {}

  DeviceStatus load(const CodeImage&, ModuleHandle&, std::string* log) noexcept override {
    *log = "line 3: no such instruction";
    return {code_, 0, "the image is no valid PTX"};
  }

 private:
  StatusCode code_;
};

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

TEST_CASE("Hidden pointers stand behind the parameters and are pointers", "[runtime]") {
  const auto load_hidden = [](std::vector<Kind> kinds, std::uint32_t hidden) {
    const auto device = std::make_shared<TellingDevice>(std::move(kinds));
    const KernelSpec spec{.image = {.label = "code"},
                          .symbol = "k",
                          .parameters = {parameter(ParameterKind::binding, 8, "x")},
                          .hidden_pointers = hidden};
    return load_kernel(*device, load_module(device, spec.image), spec);
  };
  const auto kernel = load_hidden({Kind::pointer, Kind::pointer, Kind::unknown}, 2);
  CHECK(kernel->spec.parameters.size() == 1);
  CHECK(kernel->compiled.parameter_bytes() == 24);
  CHECK(refusal([&] { static_cast<void>(load_hidden({Kind::pointer}, 4'000'000'000)); }).sentence() ==
        "The spec has 4000000000 hidden pointers; a kernel has at most 4095.");
  const Error error = refusal([&] { static_cast<void>(load_hidden({Kind::pointer, Kind::value}, 1)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The spec makes parameter 1 a hidden pointer; the compiled kernel takes a value of 8 bytes there.");
}

TEST_CASE("A spec whose cluster the code is not compiled for is refused", "[runtime]") {
  const auto load_clustered = [](bool needed, std::optional<Dim3> compiled, Dim3 cluster) {
    const auto device = std::make_shared<ClusteredDevice>(needed, compiled);
    const KernelSpec spec{.image = {.label = "code"}, .symbol = "k", .cluster = cluster};
    static_cast<void>(load_kernel(*device, load_module(device, spec.image), spec));
  };
  const auto sentence = [&](bool needed, std::optional<Dim3> compiled, Dim3 cluster) {
    const Error error = refusal([&] { load_clustered(needed, compiled, cluster); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(sentence(true, Dim3{2, 1, 1}, {}) ==
        "The spec's cluster is (1,1,1); the kernel is compiled for clusters of (2,1,1) blocks.");
  CHECK(sentence(false, Dim3{2, 1, 1}, {4, 1, 1}) ==
        "The spec's cluster is (4,1,1); the kernel is compiled for clusters of (2,1,1) blocks.");
  CHECK(sentence(true, {}, {}) == "The spec has no cluster; the kernel is compiled for clusters alone.");
  CHECK_NOTHROW(load_clustered(true, {}, {4, 1, 1}));
  CHECK_NOTHROW(load_clustered(true, Dim3{2, 1, 1}, {2, 1, 1}));
  CHECK_NOTHROW(load_clustered(false, Dim3{1, 1, 1}, {}));
}

TEST_CASE("Variables of an image are found by name and exact size", "[runtime]") {
  const auto device = std::make_shared<VariableDevice>();
  const auto find = [&](std::vector<ModuleGlobal> globals) {
    const KernelSpec spec{.image = {.label = "code"}, .symbol = "k", .globals = std::move(globals)};
    return find_globals(load_module(device, spec.image), spec);
  };
  struct Table {
    float values[3] = {};
  };
  CHECK(find({module_global("table", Table{})}) == std::vector<DeviceAddress>{0x1000});
  const Error size = refusal([&] { static_cast<void>(find({module_global("table", 1.0f)})); });
  CHECK(size.code() == ErrorCode::invalid);
  CHECK(size.sentence() == "The spec gives the variable \"table\" 4 bytes; in the code image \"code\" it has 12.");
  const Error name = refusal([&] { static_cast<void>(find({module_global("bias", 1.0f)})); });
  CHECK(name.code() == ErrorCode::invalid);
  CHECK(name.sentence() == "The code image \"code\" has no variable \"bias\" (the image has no such symbol).");
}

TEST_CASE("What the driver's compiler says of code stands in the refusal", "[runtime]") {
  // A driver may call text that does not compile an image without code for the GPU.
  for (const StatusCode status : {StatusCode::invalid, StatusCode::unsupported}) {
    const auto device = std::make_shared<RefusingDevice>(status);
    const Error error = refusal([&] { static_cast<void>(load_module(device, {.label = "text"})); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() ==
          "The device does not take its 0 bytes as a fatbin, a cubin or PTX (the image is no valid PTX). The driver's "
          "compiler says: line 3: no such instruction");
  }
}

}  // namespace weft::test
