#pragma once

#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/test_kernels.h"
#include <weft/weft.h>

#include <cstdint>
#include <span>
#include <vector>

// What the tests of models share: a context and a session on the device that the suite runs on, with the test kernels
// loaded, and short words for requests.

namespace weft::test {

/// A context, and a session of its device with the test kernels.
struct TestSession {
  TestSession();
  explicit TestSession(const Context& home);
  /// Consumes the session.
  [[nodiscard]] ModelDefinition freeze() { return std::move(session).freeze(context); }
  /// A weight of these bytes.
  [[nodiscard]] TypedRegion<std::uint8_t> weight(const std::vector<std::uint8_t>& values);

  Context context;
  ModelSession session;
  Kernel<InOut<std::uint32_t>, std::uint32_t> increment;
  Kernel<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t> xor_bytes;
  Kernel<In<std::uint32_t>, Out<std::uint32_t>, std::uint64_t, std::uint64_t> slow_copy;
  Kernel<In<std::uint8_t>, InOut<std::int64_t>, std::uint64_t, std::uint64_t> digest;

  /// y = x ^ mask over all bytes of x.
  [[nodiscard]] Command xor_of(const Region& x, const Region& y, std::uint8_t mask) const;
};

/// y = x ^ mask, over a hidden region: two dispatches.
struct XorModel {
  explicit XorModel(std::uint64_t bytes, std::uint8_t mask = 0xff);
  XorModel(TestSession test, std::uint64_t bytes, std::uint8_t mask);

  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> h;
  TypedRegion<std::uint8_t> y;
  ModelFragment fragment;
};

/// Starts a request on a slot that must be free within a minute. A model without inputs is given no bytes.
[[nodiscard]] Inference submit(PreparedModel& model, std::span<const std::uint8_t> input);
/// Waits for output 0.
[[nodiscard]] std::vector<std::uint8_t> result(Inference& run);
/// Both.
[[nodiscard]] std::vector<std::uint8_t> infer(PreparedModel& model, std::span<const std::uint8_t> input);

}  // namespace weft::test
