#pragma once

#include <weft/export.h>
#include <weft/kernel.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// CUDA C++ that is compiled by the program, with NVRTC. Of the target weft::nvrtc, which a weft that was built with a
// CUDA Toolkit has; everything else of weft does without NVRTC.

namespace weft::nvrtc {

/// A file that the source can include by name.
struct Header {
  std::string name = {};
  std::string text = {};
};

enum class Output : std::uint8_t {
  cubin,  ///< Code for one architecture.
  ptx,    ///< Text that the driver compiles when it is loaded, for this architecture and newer ones.
};

struct CompileOptions {
  std::string label = "source";     ///< The source's file name in messages.
  std::uint32_t architecture = 90;  ///< 90 for sm_90. A cubin runs on GPUs of the same major number, from here on.
  Output output = Output::cubin;
  std::vector<std::string> options = {};  ///< NVRTC's own, such as "--std=c++20"; none that names an architecture.
  std::vector<Header> headers = {};
  /// Kernels that are not extern "C", as they are named in C++: "scale<float>", "ns::linear". A template has the
  /// instances that are named here.
  std::vector<std::string> kernels = {};
};

/// Compiled code. A shared handle: copies are cheap, and specs of it keep what they need. Immutable and thread-safe.
class WEFT_API CompiledSource {
 public:
  // Copies and no moves: every handle has its code.
  CompiledSource(const CompiledSource&) = default;
  CompiledSource& operator=(const CompiledSource&) = default;
  ~CompiledSource() = default;

  /// The mangled name of one of CompileOptions::kernels. Lives as long as a copy of this handle. Errors: `invalid` for
  /// another name.
  [[nodiscard]] const std::string& lowered_name(std::string_view kernel) const;

  /// The spec of one of its kernels: `spec.symbol` is one of CompileOptions::kernels, or the name of an extern "C"
  /// kernel. Adds the image, and the label where there is none. Errors: `invalid` for a spec that has an image.
  [[nodiscard]] KernelSpec spec(KernelSpec spec) const;

  /// The cubin or the PTX. Lives as long as a copy of this handle.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
  /// What the compiler said: warnings, or nothing. Lives as long as a copy of this handle.
  [[nodiscard]] const std::string& log() const noexcept;

 private:
  struct Code;
  friend CompiledSource compile(const std::string& source, CompileOptions options);
  explicit CompiledSource(std::shared_ptr<const Code> code) noexcept;

  std::shared_ptr<const Code> code_;
};

/// Compiles `source`. Needs no GPU and no driver. Errors: `invalid` with the compiler's whole log where the source does
/// not compile, or an option is none; `unsupported` for an architecture that this NVRTC does not know. Cost: that of a
/// compiler, some hundred milliseconds.
[[nodiscard]] WEFT_API CompiledSource compile(const std::string& source, CompileOptions options = {});

}  // namespace weft::nvrtc
