#include "buffer_storage.h"
#include "checked_math.h"
#include "context_state.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "overlap.h"
#include "readback_state.h"
#include "refusal.h"
#include <weft/device_tensor.h>
#include <weft/error.h>
#include <weft/readback.h>

#include <spdlog/fmt/fmt.h>

#include <array>

namespace weft {

namespace {

void require_in_memory(bool in_graph, const char* action) {
  if (in_graph)
    refuse(fmt::format("A tensor of an unprepared graph has no bytes to {}; its graph's slots have, once prepared.",
                       action));
}

void require_contiguous(const TensorDesc& desc) {
  if (!desc.is_contiguous()) refuse(fmt::format("The tensor {} is not contiguous.", to_string(desc)));
}

void require_fit(const TensorDesc& part, const TensorDesc& whole, std::uint64_t offset) {
  const auto end = checked_add(offset, part.bytes());
  if (!end || *end > whole.bytes()) {
    refuse(fmt::format("The tensor {} of {} bytes at byte {} leaves the {} bytes of {}.", to_string(part), part.bytes(),
                       offset, whole.bytes(), to_string(whole)));
  }
}

void require_aligned(const TensorDesc& desc, std::uint64_t offset) {
  if (offset % size_of(desc.dtype()) != 0) {
    refuse(
        fmt::format("The tensor {} would start at byte {} of its memory; it starts at multiples of its element size, "
                    "{}.",
                    to_string(desc), offset, size_of(desc.dtype())));
  }
}

/// Holds memory for the host to read.
class HostReader {
 public:
  explicit HostReader(std::shared_ptr<TrackedMemory> memory) : memory_(std::move(memory)) {
    const Sequencer::Mapping mapping = memory_->home().sequencer().map_when_done(*memory_);
    if (mapping == Sequencer::Mapping::granted) return;
    throw Error(
        ErrorCode::busy,
        mapping == Sequencer::Mapping::reserved
            ? fmt::format("The buffer \"{}\" is reserved for work outside weft; it is read once the callback that "
                          "queues it has returned.",
                          memory_->label())
            : fmt::format("The host maps the buffer \"{}\" for writing; it is read once the guard is gone.",
                          memory_->label()));
  }
  HostReader(const HostReader&) = delete;
  HostReader& operator=(const HostReader&) = delete;
  ~HostReader() { memory_->home().sequencer().unmap(*memory_, Access::read); }

 private:
  std::shared_ptr<TrackedMemory> memory_;
};

ReadbackState read_empty(const DeviceTensor& tensor) {
  ReadbackState readback;
  readback.tensors.push_back({tensor.desc(), {}});
  readback.completion = tensor.completion();
  return readback;
}

ReadbackState read_in_place(const DeviceTensor& tensor) {
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  const std::uint64_t offset = DeviceTensorAccess::offset(tensor);
  ReadbackState readback;
  readback.owner = std::make_shared<const HostReader>(memory);  // Nothing writes it from now on.
  readback.completion = memory->home().transfers().join(memory, offset, tensor.desc().bytes(), tensor.completion());
  readback.tensors.push_back({tensor.desc(), {memory->host() + offset, tensor.desc().bytes()}});
  return readback;
}

ReadbackState read_by_copy(const DeviceTensor& tensor) {
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  const std::uint64_t offset = DeviceTensorAccess::offset(tensor);
  const std::uint64_t bytes = tensor.desc().bytes();
  ContextState& context = memory->home();
  context.reap();
  ReadbackState readback;
  const auto staging = BufferStorage::track(std::make_shared<BufferStorage>(
      context.shared_from_this(), StreamHandle::none, bytes,
      AllocationOptions{.label = memory->label() + " readback", .placement = Placement::shared}));
  readback.owner = staging;
  readback.tensors.push_back({tensor.desc(), {staging->host(), bytes}});
  const std::array uses{TrackedUse{memory.get(), offset, offset + bytes, Access::read},
                        TrackedUse{staging.get(), 0, bytes, Access::write}};
  const std::array<Transfers::Step, 1> steps{CopyNode{staging->address(), memory->address() + offset, bytes}};
  const std::array owners{memory, staging};
  readback.completion = context.transfers().submit(
      context.transfers().lane(), {.uses = uses, .producers = {&tensor.completion(), 1}}, steps, owners);
  return readback;
}

}  // namespace

DeviceTensor DeviceTensor::view(const TensorDesc& desc, std::uint64_t offset) const {
  require_fit(desc, desc_, offset);
  require_aligned(desc, offset_ + offset);
  DeviceTensor part(*this);
  part.desc_ = desc;
  part.offset_ += offset;
  if (desc.is_empty()) part.memory_ = nullptr;
  return part;
}

TensorRegion DeviceTensor::region() const {
  if (graph_ == 0) {
    refuse(fmt::format("The tensor {} is in memory; Graph::bind makes it one of the graph whose commands use it.",
                       to_string(desc_)));
  }
  return {Region{graph_, allocation_, offset_, desc_.bytes()}, desc_};
}

DeviceTensor DeviceTensor::copy_into(const DeviceTensor& destination, std::uint64_t offset) const {
  return in_context(
      [&] { return fmt::format("copying {} into {}", to_string(desc_), to_string(destination.desc_)); },
      [&]() -> DeviceTensor {
        require_in_memory(graph_ != 0 || destination.graph_ != 0, "copy");
        if (memory_ != nullptr && destination.memory_ != nullptr && &memory_->home() != &destination.memory_->home())
          refuse("The two tensors belong to different contexts.");
        if (desc_.dtype() != destination.desc_.dtype()) {
          refuse(fmt::format("The elements of the one are {}, of the other {}.", to_string(desc_.dtype()),
                             to_string(destination.desc_.dtype())));
        }
        require_contiguous(desc_);
        require_contiguous(destination.desc_);
        DeviceTensor copy = destination.view(desc_, offset);
        if (desc_.is_empty()) return copy;
        if (memory_ == copy.memory_) {
          if (offset_ == copy.offset_) return copy;
          if (overlap(offset_, desc_.bytes(), copy.offset_, desc_.bytes())) {
            refuse(
                fmt::format("The bytes [{}, {}) overlap the bytes [{}, {}) of the same memory that they are copied to.",
                            offset_, offset_ + desc_.bytes(), copy.offset_, copy.offset_ + desc_.bytes()));
          }
        }
        ContextState& context = memory_->home();
        const std::uint64_t bytes = desc_.bytes();
        const std::array uses{TrackedUse{memory_.get(), offset_, offset_ + bytes, Access::read},
                              TrackedUse{copy.memory_.get(), copy.offset_, copy.offset_ + bytes, Access::write}};
        const std::array<Transfers::Step, 1> steps{
            CopyNode{copy.memory_->address() + copy.offset_, memory_->address() + offset_, bytes}};
        const std::array producers{completion_, destination.completion_};
        const std::array owners{memory_, copy.memory_};
        copy.completion_ = context.transfers().submit(context.transfers().lane(),
                                                      {.uses = uses, .producers = producers}, steps, owners);
        return copy;
      });
}

Readback DeviceTensor::download() const {
  return in_context(
      [&] { return fmt::format("downloading {}", to_string(desc_)); },
      [&] {
        require_in_memory(graph_ != 0, "download");
        if (memory_ == nullptr) return ReadbackAccess::make(read_empty(*this));
        return ReadbackAccess::make(memory_->host() != nullptr ? read_in_place(*this) : read_by_copy(*this));
      });
}

}  // namespace weft
