#pragma once

#include <cstdint>

namespace weft {

/// Where a request's tensors are.
enum class Side : std::uint8_t {
  host,    ///< In pinned staging of the slot, or in place where the model's allocation is host-visible.
  device,  ///< In device memory: inputs come from the caller's tensors; outputs stay in the slot, or go to the
           ///< caller's.
};

/// One way to submit a request. A slot has an executable for each form that it is prepared for; all of them work in the
/// same memory, and each request is one launch.
struct RequestForm {
  Side inputs = Side::host;
  Side outputs = Side::host;
  friend bool operator==(const RequestForm&, const RequestForm&) = default;
};

}  // namespace weft
