// What tests/scripts/dlpack_exchange calls: a model of weft behind a C interface. Each function returns 0, or 1 with
// the error's text in dlpack_bridge_error.

#include <weft/dlpack.h>
#include <weft/kernels.h>
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace {

using weft::dlpack::DLManagedTensorVersioned;

weft::Deadline in_a_minute() { return std::chrono::steady_clock::now() + std::chrono::minutes(1); }

/// y = 2 x.
struct Model {
  Model(weft::Device device, std::uint64_t count) : context(weft::Context::open(device)) {
    weft::ModelSession session(device);
    const auto scale = session.load(weft::kernels::scale);
    const auto x = session.allocate<float>({count}, {.label = "x"});
    const auto y = session.allocate<float>({count}, {.label = "y"});
    pool = std::move(session)
               .freeze(context)
               .fragment(weft::trusted,
                         {.inputs = {x}, .outputs = {y}, .commands = {scale(weft::workload(count), x, y, 2.0f, count)}})
               .prepare({.slots = 2,
                         .forms = {{weft::Side::host, weft::Side::device}, {weft::Side::device, weft::Side::device}}});
  }

  [[nodiscard]] weft::ModelSlot acquire() {
    std::optional<weft::ModelSlot> slot = pool->acquire(in_a_minute());
    if (!slot) throw weft::Error(weft::ErrorCode::busy, "No slot is free within a minute.");
    return std::move(*slot);
  }

  weft::Context context;
  std::optional<weft::PreparedModel> pool;
};

std::string error_text;
std::optional<Model> model;

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    error_text = error.what();
    return 1;
  }
}

DLManagedTensorVersioned* hand_out(const weft::Inference& run, void* stream) {
  // A consumer on the calling thread has no stream that could wait.
  if (model->context.device().kind == weft::Device::Kind::host) static_cast<void>(run.completion().wait(in_a_minute()));
  return weft::dlpack::export_tensor(run.tensor(0), stream);
}

}  // namespace

extern "C" {

WEFT_API const char* dlpack_bridge_error() { return error_text.c_str(); }

WEFT_API int dlpack_bridge_open(int on_cuda, std::uint64_t count) {
  return guarded([&] { model.emplace(on_cuda != 0 ? weft::Device::cuda() : weft::Device::host(), count); });
}

/// Twice the values, on the device, for a consumer on `stream`.
WEFT_API int dlpack_bridge_run(const float* values, void* stream, DLManagedTensorVersioned** twice) {
  return guarded([&] {
    weft::ModelSlot slot = model->acquire();
    const std::span<float> input = slot.input<float>(0);
    std::copy_n(values, input.size(), input.begin());
    *twice = hand_out(std::move(slot).submit(), stream);
  });
}

/// The same of another library's tensor, which is there once `stream` has come so far.
WEFT_API int dlpack_bridge_twice(DLManagedTensorVersioned* values, void* stream, DLManagedTensorVersioned** twice) {
  return guarded([&] {
    const weft::DeviceTensor input = weft::dlpack::import_tensor(model->context, values, stream);
    *twice = hand_out(model->acquire().submit({input}), stream);
  });
}

/// Whether weft holds nothing of another library any more and all slots are free.
WEFT_API int dlpack_bridge_is_idle() {
  static_cast<void>(model->context.memory());  // Lets go of what has drained.
  return model->pool->is_idle() ? 1 : 0;
}

WEFT_API void dlpack_bridge_close() { model.reset(); }
}
