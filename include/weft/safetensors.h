#pragma once

#include <weft/export.h>
#include <weft/host_tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A safetensors file, opened for reading: named tensors behind a JSON header.
///
/// A shared handle: copies are cheap and refer to the same file, which stays mapped until the last copy goes.
/// Thread-safe.
class WEFT_API Safetensors {
 public:
  /// Maps the file and checks its whole header: every size against the file, every tensor against its neighbours.
  /// Tensor data is not read. The file must not be shortened while it is open: touching the lost pages ends the
  /// process. Errors: `io`, naming the file, the tensor, the value and its limit. Cost: O(n log n) in the header's n
  /// tensors.
  [[nodiscard]] static Safetensors open(const std::filesystem::path& path);

  // Copies and no moves: every handle has its file.
  Safetensors(const Safetensors&) = default;
  Safetensors& operator=(const Safetensors&) = default;
  ~Safetensors() = default;

  /// A tensor by name, also its label. Its bytes are the file's own and live while a copy of this handle lives; they
  /// are little-endian and contiguous, and may stand at any alignment. Errors: `invalid` when there is no tensor of
  /// this name; `io` when weft has no DType for its element type.
  [[nodiscard]] HostTensor tensor(std::string_view name) const;

  /// Names of all tensors, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

  /// The free text that the file carries. Lives as long as this handle.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept;

 private:
  struct File;
  explicit Safetensors(std::shared_ptr<const File> file);

  std::shared_ptr<const File> file_;
};

}  // namespace weft
