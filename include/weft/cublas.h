#pragma once

#include <weft/command.h>
#include <weft/export.h>
#include <weft/region.h>
#include <weft/tensor.h>

#include <cstdint>
#include <memory>
#include <string>

// Matrix products of cuBLASLt as commands. Of the target weft::cublas, which a weft that was built with a CUDA Toolkit
// has; everything else of weft does without cuBLASLt.

namespace weft::cublas {

/// cuBLASLt, made ready for a GPU when a command that uses it is first prepared there. A shared handle: copies are the
/// same library, and commands keep what they need. Thread-safe. One serves a program.
class WEFT_API Library {
 public:
  Library();
  // Copies and no moves: every handle has its library.
  Library(const Library&) = default;
  Library& operator=(const Library&) = default;
  ~Library() = default;

  class State;

 private:
  friend class LibraryAccess;

  std::shared_ptr<State> state_;
};

/// What NVIDIA recommends for sm_90.
inline constexpr std::uint64_t kWorkspaceBytes = 32ull << 20;

/// A linear layer: y = x w^T, or y = x w^T + b, with x [rows, in], w [out, in], b [out] and y [rows, out], all dense,
/// row-major and of one type. Sums are in f32 and are rounded to the type once.
struct LinearShape {
  std::uint64_t rows = 0;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  DType dtype = DType::f32;  ///< f32, f16 or bf16.
  /// Lets f32 factors be rounded to TF32, with 10 bits after the point, for speed. Other types are not concerned.
  bool allow_tf32 = false;
  /// Upper limit of the call's scratch, which each slot has and which other commands of the slot use in turn. With less
  /// there may be slower algorithms only.
  std::uint64_t workspace_bytes = kWorkspaceBytes;
  std::string label = {};  ///< Of the command.
};

/// The product as a captured call. cuBLASLt's heuristic chooses the algorithm when the command is first prepared on a
/// GPU: for regions that begin at a multiple of 16 bytes in their allocations it has the most to choose from. The host
/// device runs a plain reference.
///
/// The regions must be exactly as large as the shape says. y must not overlap the others. Errors: `invalid` for another
/// size, one of 0 or beyond 64 bits, an offset within an element, or another type; and when a model is prepared
/// `unsupported` where cuBLASLt has no algorithm for the shape in so much workspace, and what else cuBLASLt reports,
/// with its name. Thread-safe.
[[nodiscard]] WEFT_API Command linear(const Library& library, const LinearShape& shape, const Region& x,
                                      const Region& w, const Region& y);

/// The same with a bias.
[[nodiscard]] WEFT_API Command linear(const Library& library, const LinearShape& shape, const Region& x,
                                      const Region& w, const Region& b, const Region& y);

}  // namespace weft::cublas
