#include "readback_state.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/readback.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace weft {

namespace {

const ReadbackState::Tensor& tensor_at(const ReadbackState& state, std::size_t index) {
  if (index >= state.tensors.size())
    refuse(fmt::format("The readback has {} tensors; there is none at index {}.", state.tensors.size(), index));
  return state.tensors[index];
}

void require_complete(const ReadbackState& state) {
  if (!state.completion.is_done()) throw Error(ErrorCode::busy, "The bytes are on their way to the host.");
  state.completion.result();
}

}  // namespace

Readback::Readback(std::unique_ptr<ReadbackState> state) noexcept : state_(std::move(state)) {}
Readback::Readback(Readback&&) noexcept = default;
Readback& Readback::operator=(Readback&&) noexcept = default;
Readback::~Readback() = default;

ReadbackState& Readback::state() const {
  if (state_ == nullptr) refuse("The readback is moved from.");
  return *state_;
}

std::size_t Readback::size() const { return state().tensors.size(); }

const TensorDesc& Readback::desc(std::size_t index) const { return tensor_at(state(), index).desc; }

bool Readback::wait(Deadline deadline) { return state().completion.wait(deadline); }

std::span<const std::byte> Readback::bytes(std::size_t index) const {
  const ReadbackState::Tensor& tensor = tensor_at(state(), index);
  require_complete(state());
  return tensor.bytes;
}

std::vector<std::vector<std::byte>> Readback::take() const {
  const ReadbackState& readback = state();
  require_complete(readback);
  std::vector<std::vector<std::byte>> taken;
  taken.reserve(readback.tensors.size());
  for (const ReadbackState::Tensor& tensor : readback.tensors)
    taken.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
  return taken;
}

bool Readback::read_into(std::span<const std::span<std::byte>> outputs, Deadline deadline) {
  const ReadbackState& readback = state();
  if (outputs.size() != readback.tensors.size()) {
    refuse(fmt::format("The readback has {} tensors; {} spans are given to read them into.", readback.tensors.size(),
                       outputs.size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ReadbackState::Tensor& tensor = readback.tensors[i];
    if (outputs[i].size() == tensor.bytes.size()) continue;
    refuse(fmt::format("The span {} to read into has {} bytes; its tensor {} has {}.", i, outputs[i].size(),
                       to_string(tensor.desc), tensor.bytes.size()));
  }
  if (!wait(deadline)) return false;
  for (std::size_t i = 0; i < outputs.size(); ++i) std::ranges::copy(readback.tensors[i].bytes, outputs[i].begin());
  return true;
}

}  // namespace weft
