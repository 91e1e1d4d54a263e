#include "catch.h"
#include "cuda/gpu.h"
#include "loaded_kernel.h"
#include "support/foreign_kernels.h"
#include <weft/weft.h>

#include <memory>
#include <string>

// What the driver alone tells of kernels from elsewhere.

namespace weft::test {
namespace {

bool has_clusters(const DeviceApi& api) { return api.limits().compute_capability >= 90; }

Error load_refusal(const KernelSpec& spec) {
  return refusal([&] {
    ModelSession session(Device::cuda());
    static_cast<void>(session.load(spec));
  });
}

TEST_CASE("PTX that does not compile is refused with the driver's log", "[cuda][cuda-only][foreign]") {
  std::string ptx(add_words_ptx());
  ptx.replace(ptx.find("add.u32"), 7, "odd.u32");
  const Error error = load_refusal(add_words_spec(std::as_bytes(std::span(ptx))));
  INFO(error.what());
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "The driver's compiler says: "));
  CHECK(contains(error.sentence(), "odd"));
}

TEST_CASE("Code that is compiled for a cluster tells it", "[cuda][cuda-only][foreign]") {
  const std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  if (!has_clusters(*api)) return;
  const auto compiled = [&](const KernelSpec& spec) {
    return load_kernel(*api, load_module(api, spec.image), spec)->compiled;
  };
  CHECK(compiled(pair_sums_spec()).cluster == Dim3{2, 1, 1});
  CHECK(compiled(cluster_sums_spec(2)).cluster == std::nullopt);
  KernelSpec without = pair_sums_spec();
  without.cluster = {};
  const Error error = load_refusal(without);
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The spec's cluster is (1,1,1); the kernel is compiled for clusters of (2,1,1) blocks.");
}

TEST_CASE("As many blocks are resident as a cooperative launch takes", "[cuda][cuda-only][foreign]") {
  const std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  const KernelSpec spec = grid_sums_spec();
  const auto kernel = load_kernel(*api, load_module(api, spec.image), spec);
  KernelNode launch{.kernel = kernel->handle, .grid = {1, 1, 1}, .block = {32, 1, 1}, .parameters = {}};
  std::uint64_t blocks = 0;
  must(api->max_resident_blocks(launch, blocks));
  CHECK(blocks >= api->limits().multiprocessors);
  CHECK(blocks % api->limits().multiprocessors == 0);
  launch.dynamic_shared_bytes = api->limits().max_shared_bytes - kernel->compiled.static_shared_bytes;
  must(api->max_resident_blocks(launch, blocks));
  CHECK(blocks == api->limits().multiprocessors);

  // The largest grid runs, and one block more is refused.
  ModelSession session(Device::cuda());
  const std::uint64_t most = api->limits().multiprocessors;
  KernelSpec wide = spec;
  wide.block = {32, 1, 1};
  wide.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  const KernelId sums = session.load(wide);
  const auto words = [&](const char* label) { return session.allocate<std::uint32_t>({most + 1}, {.label = label}); };
  const auto x = words("x");
  const auto partial = words("partial");
  const auto y = words("y");
  const std::vector<std::uint32_t> ones(most + 1, 1);
  session.upload(x, std::as_bytes(std::span(ones)));
  session.record("most", {dispatch(sums, grid(most), {x, partial, y})});
  session.replay("most");
  std::vector<std::uint32_t> sum(1);
  session.read(y.slice(0, 4), std::as_writable_bytes(std::span(sum)));
  CHECK(sum.front() == most);
  const Error error = refusal([&] { session.record("more", {dispatch(sums, grid(most + 1), {x, partial, y})}); });
  CHECK(error.code() == ErrorCode::invalid);
}

TEST_CASE("A variable that the image lacks or of another size is refused", "[cuda][cuda-only][foreign]") {
  KernelSpec unknown = from_globals_spec({1, {1, 2, 3}});
  unknown.globals.front().name = "offset";
  const Error no_such = load_refusal(unknown);
  CHECK(no_such.code() == ErrorCode::invalid);
  CHECK(no_such.sentence() ==
        "The code image \"foreign kernels\" has no variable \"offset\" (the image has no such symbol).");
  KernelSpec shorter = from_globals_spec({1, {1, 2, 3}});
  shorter.globals.back().bytes.resize(8);
  const Error size = load_refusal(shorter);
  CHECK(size.code() == ErrorCode::invalid);
  CHECK(size.sentence() ==
        "The spec gives the variable \"table\" 8 bytes; in the code image \"foreign kernels\" it has 12.");
}

}  // namespace
}  // namespace weft::test
