#include "support/model_fixture.h"

#include "support/device.h"

#include <algorithm>
#include <utility>

namespace weft::test {

TestSession::TestSession() : TestSession(Context::open(test_device())) {}

TestSession::TestSession(const Context& home)
    : context(home),
      session(home.device()),
      increment(session.load(test::increment)),
      xor_bytes(session.load(test::xor_bytes)),
      slow_copy(session.load(test::slow_copy)),
      digest(session.load(test::digest)) {}

TypedRegion<std::uint8_t> TestSession::weight(const std::vector<std::uint8_t>& values) {
  return session.weight<std::uint8_t>({TensorDesc(DType::u8, {values.size()}), std::as_bytes(std::span(values)), "w"});
}

Command TestSession::xor_of(const Region& x, const Region& y, std::uint8_t mask) const {
  return xor_bytes(workload(x.bytes), x, y, x.bytes, mask);
}

XorModel::XorModel(std::uint64_t bytes, std::uint8_t mask) : XorModel(TestSession(), bytes, mask) {}

XorModel::XorModel(TestSession test, std::uint64_t bytes, std::uint8_t mask)
    : x(test.session.allocate<std::uint8_t>({bytes}, {.label = "x"})),
      h(test.session.allocate<std::uint8_t>({bytes}, {.label = "h"})),
      y(test.session.allocate<std::uint8_t>({bytes}, {.label = "y"})),
      fragment(test.freeze().fragment(
          trusted, {.inputs = {x},
                    .outputs = {y},
                    .commands = {test.xor_of(x, h, 0x55).label("first"),
                                 test.xor_of(h, y, static_cast<std::uint8_t>(0x55 ^ mask)).label("second")},
                    .label = "xor"})) {}

Inference submit(PreparedModel& model, std::span<const std::uint8_t> input) {
  std::optional<ModelSlot> slot = model.acquire(in_a_minute());
  if (!slot) throw Error(ErrorCode::internal, "A slot of the test is not free within a minute.");
  if (!input.empty()) std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
  return std::move(*slot).submit();
}

std::vector<std::uint8_t> result(Inference& run) {
  if (!run.wait(in_a_minute())) throw Error(ErrorCode::internal, "A run of the test takes longer than a minute.");
  const std::span<const std::uint8_t> bytes = run.output<std::uint8_t>(0);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::uint8_t> infer(PreparedModel& model, std::span<const std::uint8_t> input) {
  Inference run = submit(model, input);
  return result(run);
}

}  // namespace weft::test
