#include "catch.h"
#include "device/device_decorator.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"

#include <algorithm>
#include <atomic>
#include <variant>
#include <vector>

namespace weft::test {

namespace {

/// A device whose driver refuses memset nodes on pool memory, as some did for some sizes, and whose start-up probe
/// found out.
class MemsetRefusingDevice final : public DeviceDecorator {
 public:
  explicit MemsetRefusingDevice(const std::shared_ptr<DeviceApi>& inner)
      : DeviceDecorator(inner), limits_(inner->limits()) {
    limits_.fill_nodes_on_pool_memory = false;
  }

  [[nodiscard]] const DeviceLimits& limits() const noexcept override { return limits_; }
  DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                        NodeHandle& handle) noexcept override {
    return is_refused(node) ? kRefused : DeviceDecorator::add_node(graph, node, edges, handle);
  }
  DeviceStatus set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept override {
    return is_refused(node) ? kRefused : DeviceDecorator::set_node(graph, handle, node);
  }
  DeviceStatus set_executable_node(ExecutableHandle executable, NodeHandle handle, const Node& node) noexcept override {
    return is_refused(node) ? kRefused : DeviceDecorator::set_executable_node(executable, handle, node);
  }

  [[nodiscard]] int refused() const noexcept { return refused_; }

 private:
  static constexpr DeviceStatus kRefused{StatusCode::invalid, 1, "memset node on pool memory"};

  bool is_refused(const Node& node) noexcept {
    if (!std::holds_alternative<FillNode>(node)) return false;
    ++refused_;
    return true;
  }

  DeviceLimits limits_;
  std::atomic<int> refused_{0};
};

}  // namespace

TEST_CASE("Fills of any size run where the driver refuses every memset node", "[model][case44]") {
  const auto device = std::make_shared<MemsetRefusingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  constexpr std::uint64_t kBytes = 70'000;
  constexpr std::uint64_t kSizes[] = {1, 280, 65'536};
  for (const std::uint64_t size : kSizes) {
    INFO(size << " bytes");
    TestSession test;
    const auto y = test.session.allocate<std::uint8_t>({kBytes}, {.label = "y"});
    PreparedModel prepared =
        test.freeze()
            .fragment(trusted, {.outputs = {y}, .commands = {fill(y, 0x11), fill(y.slice(3, size), 0xa5)}})
            .prepare({.slots = 3});  // Later slots are made like the first.
    CHECK(prepared.node_counts().memset_nodes == 0);
    std::vector<std::uint8_t> expected(kBytes, 0x11);
    std::fill_n(expected.begin() + 3, size, std::uint8_t{0xa5});
    std::vector<Inference> runs;
    for (int slot = 0; slot < 3; ++slot) runs.push_back(submit(prepared, {}));
    for (Inference& run : runs) CHECK(result(run) == expected);
  }
  CHECK(device->refused() == 0);
}

}  // namespace weft::test
