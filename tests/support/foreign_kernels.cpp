#include "support/foreign_kernels.h"

#include <weft/typed_kernel.h>

#include <string>
#include <utility>
#include <vector>

namespace weft {

std::span<const std::byte> foreign_kernels_image() noexcept;  // the fatbin of foreign_kernels.cu

namespace test {

namespace {

KernelSpec spec(std::string symbol, std::vector<Parameter> parameters, std::function<void(const HostLaunch&)> run) {
  HostKernel host{.run = std::move(run), .parameter_sizes = {}};
  for (const Parameter& parameter : parameters) host.parameter_sizes.push_back(parameter.size);
  return {.image = {foreign_kernels_image(), "foreign kernels"},
          .symbol = std::move(symbol),
          .parameters = std::move(parameters),
          .host = std::move(host)};
}

KernelSpec sums_spec(std::string symbol, std::uint32_t cluster) {
  KernelSpec sums = spec(std::move(symbol), parameters<In<std::uint32_t>, Out<std::uint32_t>>({"x", "y"}),
                         [cluster](const HostLaunch& launch) {
                           const auto* x = launch.get<const std::uint32_t*>(0);
                           for (std::uint64_t block = 0; block < launch.grid.x; ++block) {
                             std::uint32_t sum = 0;
                             const std::uint64_t first = block / cluster * cluster;
                             for (std::uint64_t i = 0; i < cluster; ++i) sum += x[first + i];
                             launch.get<std::uint32_t*>(1)[block] = sum;
                           }
                         });
  sums.cluster = {cluster, 1, 1};
  return sums;
}

constexpr std::string_view kAddWords = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry add_words(.param .u64 x, .param .u64 y, .param .u32 amount)
{
  .reg .u32 %r<4>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u32 %r1, [amount];
  ld.global.u32 %r2, [%rd1];
  add.u32 %r3, %r2, %r1;
  st.global.u32 [%rd2], %r3;
  ret;
}
)";

}  // namespace

KernelSpec cluster_sums_spec(std::uint32_t cluster) { return sums_spec("cluster_sums", cluster); }

KernelSpec pair_sums_spec() { return sums_spec("pair_sums", 2); }

KernelSpec grid_sums_spec() {
  KernelSpec sums =
      spec("grid_sums", parameters<In<std::uint32_t>, Out<std::uint32_t>, Out<std::uint32_t>>({"x", "partial", "y"}),
           [](const HostLaunch& launch) {
             std::uint32_t sum = 0;
             for (std::uint64_t block = 0; block < launch.grid.x; ++block) {
               launch.get<std::uint32_t*>(1)[block] = launch.get<const std::uint32_t*>(0)[block];
               sum += launch.get<const std::uint32_t*>(0)[block];
             }
             for (std::uint64_t block = 0; block < launch.grid.x; ++block) launch.get<std::uint32_t*>(2)[block] = sum;
           });
  sums.cooperative = true;
  return sums;
}

KernelSpec from_globals_spec(const Globals& globals) {
  KernelSpec kernel = spec("from_globals", parameters<Out<float>>({"y"}), [globals](const HostLaunch& launch) {
    for (std::size_t i = 0; i < 3; ++i) launch.get<float*>(0)[i] = globals.scale * globals.table[i];
  });
  kernel.block = {3, 1, 1};
  kernel.globals = {module_global("scale", globals.scale), module_global("table", globals.table)};
  return kernel;
}

KernelSpec row_scale_spec() {
  KernelSpec kernel =
      spec("row_scale",
           {{.kind = ParameterKind::bytes, .size = sizeof(RowScale), .alignment = alignof(float), .name = "params"}},
           [](const HostLaunch& launch) {
             const auto params = launch.get<RowScale>(0);
             for (std::int64_t row = 0; row < params.rows; ++row) {
               for (std::int64_t column = 0; column < params.columns; ++column)
                 params.y[row * params.y_stride + column] = params.alpha * params.x[row * params.x_stride + column];
             }
           });
  kernel.block = {64, 1, 1};
  return kernel;
}

KernelSpec add_words_spec(std::span<const std::byte> text) {
  KernelSpec kernel =
      spec("add_words", parameters<In<std::uint32_t>, Out<std::uint32_t>, std::uint32_t>({"x", "y", "amount"}),
           [](const HostLaunch& launch) {
             *launch.get<std::uint32_t*>(1) = *launch.get<const std::uint32_t*>(0) + launch.get<std::uint32_t>(2);
           });
  kernel.image = {.bytes = text, .label = "text"};
  return kernel;
}

std::string_view add_words_ptx() { return kAddWords; }

}  // namespace test

}  // namespace weft
