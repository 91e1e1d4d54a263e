#pragma once

#include <weft/command.h>
#include <weft/kernel.h>
#include <weft/region.h>
#include <weft/session.h>
#include <weft/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace weft::encoder {

struct MatmulShape {
  std::uint32_t rows = 0;
  std::uint32_t in = 0;
  std::uint32_t out = 0;
};

/// Whether this build multiplies many rows with cuBLASLt. Without it kernels of weft do, which are slower there.
[[nodiscard]] bool has_cublas() noexcept;

/// The encoder's matrix products of one element type, x w^T with x [rows, in] and w [out, in]. The same commands run on
/// the host device, as references.
class Matmul {
 public:
  /// Loads what the products need into the session that the weights are in.
  Matmul(ModelSession& session, DType dtype);

  /// y [rows, out] = x w^T.
  [[nodiscard]] Command operator()(MatmulShape shape, const Region& x, const Region& w, const Region& y) const;

  /// Whether `gelu` is there for this number of rows.
  [[nodiscard]] bool has_gelu(std::uint32_t rows) const noexcept { return is_skinny(rows); }
  /// y = gelu(x w^T + b), in one kernel; for a number of rows that `has_gelu`.
  [[nodiscard]] Command gelu(MatmulShape shape, const Region& x, const Region& w, const Region& b,
                             const Region& y) const;

 private:
  struct Skinny {
    KernelId linear;
    KernelId linear_gelu;
  };
  /// Here is chosen what computes a product.
  [[nodiscard]] bool is_skinny(std::uint32_t rows) const noexcept;

  std::optional<Skinny> skinny_;  ///< For few rows of 2-byte elements.
  std::function<Command(MatmulShape, const Region& x, const Region& w, const Region& y)> general_;
};

}  // namespace weft::encoder
