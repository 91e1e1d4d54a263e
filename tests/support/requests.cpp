#include "support/requests.h"

#include "support/deadlines.h"
#include <weft/error.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace weft::test {

std::vector<RequestForm> all_forms() { return {kHostHost, kHostDevice, kDeviceHost, kDeviceDevice}; }

DeviceTensor ready(const Context& context, const std::vector<std::uint8_t>& values) {
  DeviceTensor tensor = upload(context, values);
  if (!tensor.wait(in_a_minute())) throw Error(ErrorCode::internal, "An upload of the test takes over a minute.");
  return tensor;
}

Inference start(PreparedModel& pool, RequestForm form, const std::vector<std::uint8_t>& input,
                std::vector<DeviceTensor> into) {
  std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
  if (!slot) throw Error(ErrorCode::internal, "A slot of the test is not free within a minute.");
  SubmitOptions options{.outputs = form.outputs, .into = std::move(into)};
  if (form.inputs == Side::device) return std::move(*slot).submit({upload(pool.context(), input)}, std::move(options));
  std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
  return std::move(*slot).submit(std::move(options));
}

std::vector<std::uint8_t> answer(Inference& run, RequestForm form) {
  return form.outputs == Side::host ? result(run) : values(run.tensor(0));
}

}  // namespace weft::test
