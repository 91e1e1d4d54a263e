#include "catch.h"
#include "device/device_decorator.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/foreign_kernels.h"
#include "support/limits_device.h"
#include "support/model_fixture.h"
#include <weft/plan/topology.h>
#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

// Kernels from elsewhere in whole models: clusters, cooperative launches, variables of an image, structs with pointers,
// PTX text.

namespace weft::test {
namespace {

using Words = std::vector<std::uint32_t>;

/// Blocks with clusters need a GPU that has them.
bool has_clusters() { return open_device(test_device())->limits().compute_capability >= 90; }

template <class T>
std::vector<T> values_of(ModelSession& session, const Region& region) {
  std::vector<T> values(region.bytes / sizeof(T));
  session.read(region, std::as_writable_bytes(std::span(values)));
  return values;
}

Words counted_from(std::uint32_t first, std::size_t count) {
  Words words(count);
  std::iota(words.begin(), words.end(), first);
  return words;
}

/// A session of the device that the suite runs on, with words x and y.
struct WordSession {
  explicit WordSession(std::uint64_t count)
      : x(session.allocate<std::uint32_t>({count}, {.label = "x"})),
        y(session.allocate<std::uint32_t>({count}, {.label = "y"})) {
    const Words words = counted_from(1, count);
    session.upload(x, std::as_bytes(std::span(words)));
  }
  /// y, after one run of the command.
  Words run(const Command& command) {
    session.record("once", {command});
    session.replay("once");
    return values_of<std::uint32_t>(session, y);
  }
  Error refusal_of(const Command& command) {
    return refusal([&] { session.record("once", {command}); });
  }

  ModelSession session{test_device()};
  TypedRegion<std::uint32_t> x;
  TypedRegion<std::uint32_t> y;
};

/// y of a cluster of this many blocks, when x counts from 1.
Words sums_of_clusters(std::uint32_t cluster, std::uint32_t blocks) {
  Words sums;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::uint32_t first = block / cluster * cluster + 1;
    sums.push_back(cluster * first + cluster * (cluster - 1) / 2);
  }
  return sums;
}

}  // namespace

TEST_CASE("Blocks of a cluster read each other's shared memory", "[model][foreign]") {
  if (!has_clusters()) return;
  for (const std::uint32_t cluster : {1u, 2u, 4u, 8u, 16u}) {
    INFO("cluster of " << cluster);
    WordSession test(48);
    const KernelId sums = test.session.load(cluster_sums_spec(cluster));
    CHECK(test.run(dispatch(sums, grid(48), {test.x, test.y})) == sums_of_clusters(cluster, 48));
  }
}

TEST_CASE("Code that is compiled for a cluster runs in it", "[model][foreign]") {
  if (!has_clusters()) return;
  WordSession test(6);
  const KernelId sums = test.session.load(pair_sums_spec());
  CHECK(test.run(dispatch(sums, grid(6), {test.x, test.y})) == sums_of_clusters(2, 6));
}

TEST_CASE("A grid that is not made of whole clusters is refused", "[model][foreign]") {
  if (!has_clusters()) return;
  WordSession test(8);
  const KernelId sums = test.session.load(cluster_sums_spec(4));
  const Error error = test.refusal_of(dispatch(sums, grid(6), {test.x, test.y}));
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The grid's x is 6; it must be a multiple of the cluster's, which is 4.");
  CHECK_NOTHROW(test.session.record("whole", {dispatch(sums, grid(8), {test.x, test.y})}));
}

TEST_CASE("A cluster that is none is refused", "[model][foreign]") {
  if (!has_clusters()) return;
  ModelSession session(test_device());
  const auto sentence = [&](Dim3 cluster) {
    KernelSpec spec = cluster_sums_spec(1);
    spec.cluster = cluster;
    const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(sentence({2, 0, 1}) == "The cluster is (2,0,1); no axis may be 0.");
  CHECK(sentence({4, 2, 3}) == "The cluster is (4,2,3); a cluster has at most 16 blocks.");
  CHECK(sentence({1, 0xffffffff, 0xffffffff}) ==
        "The cluster is (1,4294967295,4294967295); a cluster has at most 16 blocks.");
}

TEST_CASE("Clusters on a GPU before sm_90 are unsupported", "[model][foreign]") {
  const auto older = std::make_shared<LimitsDevice>(open_device(test_device()), [](DeviceLimits& limits) {
    limits.name = "an older GPU";
    limits.compute_capability = 89;
  });
  const ScopedDevice scoped(test_device(), older);
  ModelSession session(test_device());
  const Error error = refusal([&] { static_cast<void>(session.load(cluster_sums_spec(2))); });
  CHECK(error.code() == ErrorCode::unsupported);
  CHECK(error.sentence() ==
        "The spec asks for clusters of (2,1,1) blocks; an older GPU is sm_89, and clusters need sm_90 or newer.");
}

TEST_CASE("All blocks of a cooperative launch wait for each other", "[model][foreign]") {
  WordSession test(100);
  const auto partial = test.session.allocate<std::uint32_t>({100}, {.label = "partial"});
  const KernelId sums = test.session.load(grid_sums_spec());
  CHECK(test.run(dispatch(sums, grid(100), {test.x, partial, test.y})) == Words(100, 5050));
}

TEST_CASE("A cooperative grid that the device cannot hold at once is refused", "[model][foreign]") {
  WordSession test(4);
  const auto partial = test.session.allocate<std::uint32_t>({4}, {.label = "partial"});
  const KernelId sums = test.session.load(grid_sums_spec());
  const Error error = test.refusal_of(dispatch(sums, grid(4, 65535, 65535), {test.x, partial, test.y}));
  CHECK(error.code() == ErrorCode::invalid);
  INFO(error.sentence());
  CHECK(contains(error.sentence(), "The grid is (4,65535,65535); the device holds "));
  CHECK(contains(error.sentence(), " blocks of this cooperative launch at once."));
}

TEST_CASE("Slots of a model run clustered and cooperative kernels", "[model][foreign]") {
  if (!has_clusters()) return;
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({32}, {.label = "x"});
  const auto h = test.session.allocate<std::uint32_t>({32}, {.label = "h"});
  const auto partial = test.session.allocate<std::uint32_t>({32}, {.label = "partial"});
  const auto y = test.session.allocate<std::uint32_t>({32}, {.label = "y"});
  const KernelId clustered = test.session.load(cluster_sums_spec(4));
  const KernelId cooperative = test.session.load(grid_sums_spec());
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {y},
                .commands = {dispatch(clustered, grid(32), {x, h}), dispatch(cooperative, grid(32), {h, partial, y})}});
  PreparedModel prepared = fragment.prepare({.slots = 3});
  // Slots after the first have their nodes set anew.
  std::vector<ModelSlot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(std::move(*prepared.acquire(in_a_minute())));
  for (std::uint32_t i = 0; i < 3; ++i) {
    std::ranges::copy(counted_from(i, 32), slots[i].input<std::uint32_t>(0).begin());
    Inference run = std::move(slots[i]).submit();
    REQUIRE(run.wait(in_a_minute()));
    const auto output = run.output<std::uint32_t>(0);
    CHECK(Words(output.begin(), output.end()) == Words(32, 4 * (32 * i + 31 * 32 / 2)));
  }

  const std::string text = to_text(prepared.topology());
  INFO(text);
  CHECK(contains(text, "cluster_sums grid(32,1,1) block(1,1,1) cluster(4,1,1)"));
  CHECK(contains(text, "grid_sums grid(32,1,1) block(1,1,1) cooperative"));
  const std::string json = to_json(prepared.topology());
  CHECK(contains(json, "\"cluster\""));
  CHECK(contains(json, "\"cooperative\": true"));
}

TEST_CASE("Variables of an image have the values of the spec before its kernels run", "[model][foreign]") {
  ModelSession session(test_device());
  const auto y = session.allocate<float>({3}, {.label = "y"});
  const auto z = session.allocate<float>({3}, {.label = "z"});
  const KernelId first = session.load(from_globals_spec({2, {1, 2, 3}}));
  const KernelId second = session.load(from_globals_spec({-1, {4, 5, 6}}));
  session.record("both", {dispatch(first, grid(1), {y}), dispatch(second, grid(1), {z})});
  session.replay("both");
  CHECK(values_of<float>(session, y) == std::vector<float>{2, 4, 6});
  CHECK(values_of<float>(session, z) == std::vector<float>{-4, -5, -6});
}

TEST_CASE("An image is loaded once for each list of values", "[model][foreign][B17]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  ModelSession session(test_device());
  for (const float scale : {1.0f, 2.0f, 1.0f, 2.0f})
    static_cast<void>(session.load(from_globals_spec({scale, {1, 2, 3}})));
  CHECK(device->count(Verb::load) == 2);
  static_cast<void>(session.load(row_scale_spec()));  // Without values of its own: neither of them.
  CHECK(device->count(Verb::load) == 3);
}

TEST_CASE("Variables that the spec sets twice are refused", "[model][foreign]") {
  ModelSession session(test_device());
  KernelSpec spec = from_globals_spec({1, {1, 2, 3}});
  spec.globals.push_back(module_global("scale", 2.0f));
  const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The spec sets the variable \"scale\" twice.");
}

TEST_CASE("Variables of a kernel of the program are refused", "[model][foreign]") {
  ModelSession session(Device::host());
  KernelSpec spec = row_scale_spec();
  const int function = 0;
  spec.image = {.label = "the program", .native = {.function = &function}};
  spec.globals = {module_global("scale", 2.0f)};
  const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The spec sets the variable \"scale\" of a kernel of the program; only an image of its own has variables to "
        "set.");
}

// Shown in docs/kernels.md.
Command scale_rows(KernelId kernel, const TypedRegion<float>& x, const TypedRegion<float>& y, float alpha) {
  RowScale params;
  params.rows = static_cast<std::int32_t>(x.desc.shape()[0]);
  params.columns = static_cast<std::int32_t>(x.desc.shape()[1]);
  params.x_stride = params.columns;
  params.y_stride = params.columns;
  params.alpha = alpha;
  return dispatch(kernel, grid(x.desc.shape()[0]),
                  {bytes(params, {{offsetof(RowScale, x), x.read()}, {offsetof(RowScale, y), y.write()}})});
}

TEST_CASE("A struct in the way of CUTLASS carries pointers and strides and scalars", "[model][foreign]") {
  TestSession test;
  const auto x = test.session.allocate<float>({3, 70}, {.label = "x"});
  const auto h = test.session.allocate<float>({3, 70}, {.label = "h"});
  const auto y = test.session.allocate<float>({3, 70}, {.label = "y"});
  const KernelId kernel = test.session.load(row_scale_spec());
  const ModelFragment fragment = test.freeze().fragment(
      trusted,
      {.inputs = {x}, .outputs = {y}, .commands = {scale_rows(kernel, x, h, 2), scale_rows(kernel, h, y, -0.5f)}});
  PreparedModel prepared = fragment.prepare({.slots = 2});
  // The pointers inside order the two commands, and each slot has its own.
  std::vector<ModelSlot> slots;
  for (int i = 0; i < 2; ++i) slots.push_back(std::move(*prepared.acquire(in_a_minute())));
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<float> input(210);
    std::iota(input.begin(), input.end(), static_cast<float>(1000 * i));
    std::ranges::copy(input, slots[i].input<float>(0).begin());
    Inference run = std::move(slots[i]).submit();
    REQUIRE(run.wait(in_a_minute()));
    for (float& value : input) value = -value;
    const auto output = run.output<float>(0);
    CHECK(std::vector<float>(output.begin(), output.end()) == input);
  }
}

TEST_CASE("PTX text runs with and without a zero at its end", "[model][foreign]") {
  const std::string ptx(add_words_ptx());
  const std::string followed = ptx + "this is no PTX";
  const std::string terminated(ptx.c_str(), ptx.size() + 1);
  for (const std::string_view text : {std::string_view(followed).substr(0, ptx.size()), std::string_view(terminated)}) {
    WordSession test(1);
    const KernelId add = test.session.load(add_words_spec(std::as_bytes(std::span(text))));
    CHECK(test.run(dispatch(add, grid(1), {test.x, test.y, std::uint32_t{41}})) == Words{42});
  }
}

TEST_CASE("An image that owns its bytes needs nobody else to keep them", "[model][foreign]") {
  WordSession test(1);
  KernelSpec spec;
  {
    const auto text = std::make_shared<const std::string>(add_words_ptx());
    spec = add_words_spec(std::as_bytes(std::span(*text)));
    spec.image.owner = text;
  }
  const std::weak_ptr<const void> owner = spec.image.owner;
  const KernelId add = test.session.load(spec);
  spec = {};
  CHECK(owner.expired());  // A loaded kernel holds its code no longer.
  CHECK(test.run(dispatch(add, grid(1), {test.x, test.y, std::uint32_t{6}})) == Words{7});
}

}  // namespace weft::test
