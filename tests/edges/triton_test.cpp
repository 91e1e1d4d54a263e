#include "catch.h"
#include "device/registry.h"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/triton.h>
#include <weft/typed_kernel.h>
#include <weft/weft.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

// Kernels out of Triton's cache: tests/data/triton.

namespace weft::test {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kFolder = std::filesystem::path(WEFT_TEST_DATA) / "triton";

/// The cubins are for sm_90.
bool runs_cubins() { return !on_cuda() || open_device(test_device())->limits().compute_capability / 10 == 9; }

void run_axpy(const HostLaunch& launch) {
  for (std::int32_t i = 0; i < launch.get<std::int32_t>(4); ++i)
    launch.get<float*>(2)[i] = launch.get<float>(3) * launch.get<const float*>(0)[i] + launch.get<const float*>(1)[i];
}

void run_softmax(const HostLaunch& launch) {
  const auto columns = static_cast<std::size_t>(launch.get<std::int32_t>(2));
  for (std::uint64_t row = 0; row < launch.grid.x; ++row) {
    const float* x = launch.get<const float*>(1) + row * columns;
    float* y = launch.get<float*>(0) + row * columns;
    const float most = *std::max_element(x, x + columns);
    float sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += y[i] = std::exp(x[i] - most);
    for (std::size_t i = 0; i < columns; ++i) y[i] /= sum;
  }
}

// Shown in docs/kernels.md.
KernelSpec axpy_spec(const std::filesystem::path& folder) {
  return triton::kernel(
      folder / "axpy.json",
      {.parameters = parameters<In<float>, In<float>, Out<float>, float, std::int32_t>({"x", "y", "o", "a", "n"}),
       .launch =
           [](std::span<const std::uint64_t> words) {
             return LaunchConfig{.grid = {(words[0] + 255) / 256}};  // 256 elements a program.
           },
       .host = HostKernel{.run = run_axpy, .parameter_sizes = {8, 8, 8, 4, 4}}});
}

constexpr TypedKernelSpec<In<float>, In<float>, Out<float>, float, std::int32_t> kAxpy{
    [] { return axpy_spec(kFolder); }};

KernelSpec softmax_spec() {
  return triton::kernel(kFolder / "softmax.json",
                        {.label = "softmax rows",
                         .parameters = parameters<Out<float>, In<float>, std::int32_t>({"o", "x", "columns"}),
                         .host = HostKernel{.run = run_softmax, .parameter_sizes = {8, 8, 4}}});
}

/// A folder that goes with the object, with a changed copy of axpy in it.
class ChangedAxpy {
 public:
  ChangedAxpy() {
    static int made = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("weft_triton_" + std::to_string(::getpid()) + "_" + std::to_string(made++));
    std::filesystem::create_directory(folder_);
    std::filesystem::copy_file(kFolder / "axpy.cubin", folder_ / "axpy.cubin");
    json = Json::parse(std::ifstream(kFolder / "axpy.json"));
  }
  ~ChangedAxpy() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ChangedAxpy(const ChangedAxpy&) = delete;
  ChangedAxpy& operator=(const ChangedAxpy&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] KernelSpec open() const {
    std::ofstream(folder_ / "axpy.json") << json.dump();
    return axpy_spec(folder_);
  }
  [[nodiscard]] Error refusal_of() const {
    return refusal([&] { static_cast<void>(open()); });
  }

  Json json;

 private:
  std::filesystem::path folder_;
};

Error refusal_with(const char* field, Json value) {
  ChangedAxpy axpy;
  axpy.json[field] = std::move(value);
  return axpy.refusal_of();
}

}  // namespace

TEST_CASE("A Triton kernel's spec is what its JSON says", "[edges][triton]") {
  const KernelSpec axpy = axpy_spec(kFolder);
  CHECK(axpy.symbol == "axpy");
  CHECK(axpy.block == Dim3{128, 1, 1});
  CHECK(axpy.cluster == Dim3{});
  CHECK_FALSE(axpy.cooperative);
  CHECK(axpy.dynamic_shared_bytes == 0);
  CHECK(axpy.hidden_pointers == 2);
  CHECK(axpy.parameters.size() == 5);
  CHECK(axpy.image.label == "axpy.cubin for sm_90");
  CHECK(axpy.image.bytes.size() == std::filesystem::file_size(kFolder / "axpy.cubin"));
  CHECK(axpy.name() == "axpy");
  CHECK(softmax_spec().name() == "softmax rows");
  const Json softmax = Json::parse(std::ifstream(kFolder / "softmax.json"));
  CHECK(softmax_spec().block.x == 32 * softmax["num_warps"].get<std::uint32_t>());
  CHECK(softmax_spec().dynamic_shared_bytes == softmax["shared"].get<std::uint32_t>());
}

TEST_CASE("Triton kernels run in a model with the arguments that their functions have", "[edges][triton]") {
  if (!runs_cubins()) return;
  constexpr std::uint64_t kRows = 5;
  constexpr std::uint64_t kColumns = 130;
  constexpr std::uint64_t kCount = kRows * kColumns;
  const Context context = Context::open(test_device());
  ModelSession session(test_device());
  const auto x = session.allocate<float>({kRows, kColumns}, {.label = "x"});
  const auto h = session.allocate<float>({kRows, kColumns}, {.label = "h"});
  const auto y = session.allocate<float>({kRows, kColumns}, {.label = "y"});
  const auto axpy = session.load(kAxpy);
  const KernelId softmax = session.load(softmax_spec());
  const ModelFragment fragment = std::move(session).freeze(context).fragment(
      trusted, {.inputs = {x},
                .outputs = {y},
                .commands = {axpy(workload(kCount), x, x, h, 2.0f, static_cast<std::int32_t>(kCount)),
                             dispatch(softmax, grid(kRows), {y, h, static_cast<std::int32_t>(kColumns)})}});
  PreparedModel prepared = fragment.prepare();
  ModelSlot slot = std::move(*prepared.acquire(in_a_minute()));
  const auto input = slot.input<float>(0);
  for (std::size_t i = 0; i < kCount; ++i) input[i] = static_cast<float>(i * 37 % 101) / 101;
  std::vector<float> expected(input.begin(), input.end());
  for (std::size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < kColumns; ++i) sum += std::exp(3.0 * expected[row * kColumns + i]);
    for (std::size_t i = 0; i < kColumns; ++i) {
      float& value = expected[row * kColumns + i];
      value = static_cast<float>(std::exp(3.0 * value) / sum);
    }
  }
  Inference run = std::move(slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  const auto output = run.output<float>(0);
  for (std::size_t i = 0; i < kCount; ++i) {
    INFO("element " << i);
    CHECK(std::abs(output[i] - expected[i]) <= 1e-5f * expected[i]);
  }
}

TEST_CASE("A hidden pointer is no argument of a call", "[edges][triton]") {
  if (!runs_cubins()) return;
  const Context context = Context::open(test_device());
  ModelSession session(test_device());
  const auto x = session.allocate<float>({4}, {.label = "x"});
  const KernelId axpy = session.load(axpy_spec(kFolder));
  const std::uint64_t null = 0;
  const Error error = refusal([&] {
    session.record("seven", {dispatch(axpy, grid(1), {x, x, x, 1.0f, std::int32_t{4}, null, null})});
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The call has 7 arguments; the kernel has 5 parameters.");
}

TEST_CASE("A launch rule of a Triton kernel gives the grid and its file the shared memory", "[edges][triton]") {
  ChangedAxpy axpy;
  axpy.json["shared"] = 4096;
  const KernelSpec spec = axpy.open();
  const std::vector<std::uint64_t> words{1000};
  CHECK(spec.dynamic_shared_bytes == 4096);
  CHECK(spec.launch(words) == LaunchConfig{.grid = {4, 1, 1}, .dynamic_shared_bytes = 4096});
}

TEST_CASE("Clusters and cooperation of a Triton kernel are those of its file", "[edges][triton]") {
  ChangedAxpy axpy;
  axpy.json["num_ctas"] = 4;
  axpy.json["launch_cooperative_grid"] = true;
  axpy.json["target"] = {{"backend", "cuda"}, {"arch", 90}, {"warp_size", 32}};
  axpy.json.erase("profile_scratch_size");  // Of an older Triton.
  const KernelSpec spec = axpy.open();
  CHECK(spec.cluster == Dim3{4, 1, 1});
  CHECK(spec.cooperative);
  CHECK(spec.hidden_pointers == 1);
}

TEST_CASE("What weft does not give a Triton kernel is unsupported by name", "[edges][triton]") {
  const auto sentence = [](const char* field, const Json& value) {
    const Error error = refusal_with(field, value);
    CHECK(error.code() == ErrorCode::unsupported);
    return error.sentence();
  };
  CHECK(sentence("global_scratch_size", 128) ==
        "The kernel needs scratch (global_scratch_size is 128), which weft does not give.");
  CHECK(sentence("profile_scratch_size", 64) ==
        "The kernel needs scratch (profile_scratch_size is 64), which weft does not give.");
  CHECK(sentence("tensordesc_meta", {{{"swizzle", 3}}}) ==
        "The kernel takes tensor descriptors (tensordesc_meta is not empty), which weft does not make.");
  CHECK(sentence("target", "GPUTarget(backend='hip', arch='gfx942', warp_size=64)") ==
        "The kernel is compiled for the backend \"hip\"; weft runs code for \"cuda\".");
}

TEST_CASE("A Triton file that lacks something or says nonsense is refused by name", "[edges][triton]") {
  for (const char* field : {"name", "num_warps", "warp_size", "shared", "target"}) {
    ChangedAxpy axpy;
    axpy.json.erase(field);
    const Error error = axpy.refusal_of();
    CHECK(error.code() == ErrorCode::io);
    CHECK(error.sentence() == "The file has no field \"" + std::string(field) + "\".");
    REQUIRE(error.contexts().size() == 1);
    CHECK(error.contexts().front() == "reading the Triton kernel " + (axpy.folder() / "axpy.json").string());
  }
  const auto sentence = [](const char* field, const Json& value) {
    const Error error = refusal_with(field, value);
    CHECK(error.code() == ErrorCode::io);
    return error.sentence();
  };
  CHECK(sentence("num_warps", 33) == "The field \"num_warps\" is 33; it must be between 1 and 32.");
  CHECK(sentence("num_warps", -4) == "The field \"num_warps\" is -4; it must be between 1 and 32.");
  CHECK(sentence("shared", "much") == "The field \"shared\" is \"much\"; it must be between 0 and 4294967295.");
  CHECK(sentence("num_ctas", 17) == "The field \"num_ctas\" is 17; it must be between 1 and 16.");
  CHECK(sentence("name", "") == "The field \"name\" is \"\"; it must be a text that is not empty.");
  CHECK(sentence("name", std::string("a\0b", 3)) == "The field \"name\" is \"a\\u0000b\"; a name has no zero in it.");
  Json nested = Json::array();
  for (int depth = 0; depth < 200; ++depth) nested = Json::array({nested});
  CHECK(sentence("name", nested) == "The field \"name\" is an array; it must be a text that is not empty.");
  CHECK(sentence("target", {{"backend", "cuda"}, {"arch", (std::uint64_t{1} << 40) + 90}}) ==
        "The field \"target\" is an object; it must have a backend and an arch.");
  CHECK(sentence("launch_cooperative_grid", 1) ==
        "The field \"launch_cooperative_grid\" is 1; it must be true or false.");
  CHECK(sentence("target", "sm_90") == "The field \"target\" is \"sm_90\"; it must have a backend and an arch.");
  CHECK(sentence("target", "GPUTarget(backend='cuda', arch=ninety)") ==
        "The field \"target\" is \"GPUTarget(backend='cuda', arch=ninety)\"; it must have a backend and an arch.");
}

TEST_CASE("A Triton entry without one of its files is refused by name", "[edges][triton]") {
  ChangedAxpy axpy;
  std::filesystem::remove(axpy.folder() / "axpy.cubin");
  const Error no_code = axpy.refusal_of();
  CHECK(no_code.code() == ErrorCode::io);
  CHECK(contains(no_code.sentence(), "The file " + (axpy.folder() / "axpy.cubin").string() + " cannot be read: "));
  std::ofstream(axpy.folder() / "axpy.cubin").flush();
  CHECK(contains(axpy.refusal_of().sentence(), "is empty."));

  const Error no_metadata = refusal([] { static_cast<void>(triton::kernel("/nowhere/axpy.json", {})); });
  CHECK(no_metadata.code() == ErrorCode::io);
  CHECK(contains(no_metadata.sentence(), "The file /nowhere/axpy.json cannot be read: "));
  const Error a_folder = refusal([] { static_cast<void>(triton::kernel(kFolder, {})); });
  CHECK(a_folder.code() == ErrorCode::io);

  for (const char* text : {"", "{", "[1]", "\"axpy\""}) {
    std::ofstream(axpy.folder() / "axpy.json") << text;
    const Error error = refusal([&] { static_cast<void>(axpy_spec(axpy.folder())); });
    CHECK(error.code() == ErrorCode::io);
    CHECK(error.sentence() == "The file is no JSON object.");
  }
}

TEST_CASE("A spec that says what a Triton file says is refused", "[edges][triton]") {
  const auto sentence = [](KernelSpec spec) {
    const Error error = refusal([&] { static_cast<void>(triton::kernel(kFolder / "axpy.json", std::move(spec))); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(sentence({.symbol = "axpy"}) == "The spec says its symbol, which the file does.");
  CHECK(sentence({.block = {128, 1, 1}}) == "The spec says its block, which the file does.");
  CHECK(sentence({.cluster = {2, 1, 1}}) == "The spec says its cluster, which the file does.");
  CHECK(sentence({.cooperative = true}) == "The spec says its cooperation, which the file does.");
  CHECK(sentence({.dynamic_shared_bytes = 1}) == "The spec says its dynamic shared memory, which the file does.");
  CHECK(sentence({.hidden_pointers = 2}) == "The spec says its hidden pointers, which the file does.");
  const std::byte code{};
  CHECK(sentence({.image = {.bytes = {&code, 1}}}) == "The spec says its image, which the file does.");
}

}  // namespace weft::test
