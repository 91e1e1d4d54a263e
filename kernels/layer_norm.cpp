#include "images.h"
#include "row_block.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/float16.h>
#include <weft/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft::kernels {
namespace {

LaunchRule row_rule(std::string label) {
  return [label = std::move(label)](std::span<const std::uint64_t> workload) -> LaunchConfig {
    check_workload(label, workload, {{"rows", std::numeric_limits<std::uint32_t>::max()}});
    return {.grid = grid(std::min(blocks_for(workload[0], row_block::kRows), kMaxStridingBlocks))};
  };
}

/// One row; the sums are in f64.
template <class T>
void normalize(const std::vector<float>& row, const T* gamma, const T* beta, float eps, T* y) {
  const auto count = static_cast<double>(row.size());
  double sum = 0;
  for (const float value : row) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const float value : row) squares += (value - mean) * (value - mean);
  const double factor = 1 / std::sqrt(squares / count + eps);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double result = (row[i] - mean) * factor * to_float(gamma[i]) + to_float(beta[i]);
    y[i] = from_float<T>(static_cast<float>(result));
  }
}

template <class T>
void layer_norm_reference(const HostLaunch& launch) {
  const auto* x = launch.get<const T*>(0);
  const std::size_t columns = launch.get<std::uint32_t>(5);
  std::vector<float> row(columns);
  for (std::size_t begin = 0; begin < launch.get<std::uint32_t>(4) * columns; begin += columns) {
    for (std::size_t i = 0; i < columns; ++i) row[i] = to_float(x[begin + i]);
    normalize(row, launch.get<const T*>(1), launch.get<const T*>(2), launch.get<float>(6), launch.get<T*>(3) + begin);
  }
}

template <class T>
void layer_norm_residual_reference(const HostLaunch& launch) {
  const auto* x = launch.get<const T*>(0);
  const auto* bias = launch.get<const T*>(1);
  const auto* residual = launch.get<const T*>(2);
  const std::size_t columns = launch.get<std::uint32_t>(7);
  std::vector<float> row(columns);
  for (std::size_t begin = 0; begin < launch.get<std::uint32_t>(6) * columns; begin += columns) {
    for (std::size_t i = 0; i < columns; ++i) {
      row[i] = to_float(x[begin + i]) + to_float(bias[i]) + to_float(residual[begin + i]);
    }
    normalize(row, launch.get<const T*>(3), launch.get<const T*>(4), launch.get<float>(8), launch.get<T*>(5) + begin);
  }
}

KernelSpec make_spec(std::string label, DType dtype, std::vector<Parameter> parameters,
                     void (*reference)(const HostLaunch&)) {
  LaunchRule launch = row_rule(label);
  return shipped_spec({.label = std::move(label),
                       .dtype = dtype,
                       .image = {layer_norm_image(), "weft layer norm"},
                       .threads = row_block::kThreads,
                       .parameters = std::move(parameters),
                       .launch = std::move(launch),
                       .reference = reference});
}

}  // namespace

KernelSpec layer_norm_spec(DType dtype) {
  return spec_of_dtype("layer_norm", dtype, [dtype]<class T>() {
    return make_spec("layer_norm", dtype,
                     parameters_of(layer_norm<T>, {"x", "gamma", "beta", "y", "rows", "columns", "eps"}),
                     layer_norm_reference<T>);
  });
}

KernelSpec layer_norm_residual_spec(DType dtype) {
  return spec_of_dtype("layer_norm_residual", dtype, [dtype]<class T>() {
    return make_spec("layer_norm_residual", dtype,
                     parameters_of(layer_norm_residual<T>,
                                   {"x", "bias", "residual", "gamma", "beta", "y", "rows", "columns", "eps"}),
                     layer_norm_residual_reference<T>);
  });
}

}  // namespace weft::kernels
