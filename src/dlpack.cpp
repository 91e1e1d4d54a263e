#include "buffer_storage.h"
#include "checked_math.h"
#include "context_state.h"
#include "device/process_state.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "foreign_stream.h"
#include "kept_forever.h"
#include "logging.h"
#include "refusal.h"
#include "sequencer.h"
#include "tracked_memory.h"
#include <weft/device.h>
#include <weft/dlpack.h>
#include <weft/error.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace weft::dlpack {

namespace {

// The values of CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which are part of the driver's ABI.
constexpr StreamHandle kLegacyStream{1};
constexpr StreamHandle kPerThreadStream{2};

struct TypeName {
  DType dtype;
  DLDataType type;
};

constexpr std::array kTypes{
    TypeName{DType::u8, {kDLUInt, 8, 1}},      TypeName{DType::i8, {kDLInt, 8, 1}},
    TypeName{DType::i32, {kDLInt, 32, 1}},     TypeName{DType::u32, {kDLUInt, 32, 1}},
    TypeName{DType::i64, {kDLInt, 64, 1}},     TypeName{DType::f16, {kDLFloat, 16, 1}},
    TypeName{DType::bf16, {kDLBfloat, 16, 1}}, TypeName{DType::f32, {kDLFloat, 32, 1}},
    TypeName{DType::f64, {kDLFloat, 64, 1}},
};

DLDataType type_of(DType dtype) noexcept { return kTypes[static_cast<std::size_t>(dtype)].type; }

DType dtype_of(DLDataType type) {
  for (const TypeName& name : kTypes) {
    if (name.type.code == type.code && name.type.bits == type.bits && name.type.lanes == type.lanes) return name.dtype;
  }
  refuse(fmt::format("The elements have type code {}, {} bits and {} lanes; weft has no such element type.", type.code,
                     type.bits, type.lanes));
}

/// The stream in the device's words; none for the calling thread of the host device.
StreamHandle handle_of(const ContextState& context, void* stream) {
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  return context.device().kind == Device::Kind::cuda && handle == StreamHandle::none ? kLegacyStream : handle;
}

DLDevice device_of(Device device, Placement placement) noexcept {
  if (device.kind == Device::Kind::host) return {kDLCPU, 0};
  if (placement == Placement::shared) return {kDLCUDAHost, 0};
  return {kDLCUDA, static_cast<std::int32_t>(device.ordinal)};
}

std::vector<std::int64_t> signed_copy(const std::vector<std::uint64_t>& values) {
  std::vector<std::int64_t> copy;
  std::ranges::transform(values, std::back_inserter(copy),
                         [](std::uint64_t value) { return static_cast<std::int64_t>(value); });
  return copy;
}

/// A tensor that a consumer has, with what its structure points to.
struct Exported {
  DLManagedTensorVersioned managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  DeviceTensor tensor;
  StreamHandle stream = StreamHandle::none;
  Access access = Access::read_write;
};

/// Puts whatever comes later for the bytes behind the consumer's stream. False when nobody can tell when it is done.
bool let_go(Exported& exported) noexcept {
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(exported.tensor);
  if (memory == nullptr || exported.stream == StreamHandle::none) return true;
  DeviceApi& api = memory->home().api();
  try {
    foreign::release(exported.tensor, exported.stream, exported.access);
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::warning, memory->label(), [&] {
      return fmt::format("A tensor over \"{}\" was given back, and its consumer's stream is waited for: {}",
                         memory->label(), error.what());
    });
  }
  if (!api.health().ok()) return true;  // Nothing runs any more.
  return api.check_foreign_stream(exported.stream).ok() && api.synchronize_stream(exported.stream).ok();
}

void give_back(DLManagedTensorVersioned* self) {
  // At exit the driver is being taken down; what a child after fork has are copies of its parent's.
  if (process_state() != ProcessState::running) return;
  std::unique_ptr<Exported> exported(static_cast<Exported*>(self->manager_ctx));
  if (!let_go(*exported)) keep_forever(std::shared_ptr<const Exported>(std::move(exported)));
}

/// Makes the consumer's stream follow the tensor's values and what else is in flight on its bytes.
void hand_over(const Exported& exported) {
  const DeviceTensor& tensor = exported.tensor;
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  if (memory == nullptr) return;
  ContextState& context = memory->home();
  if (exported.stream == StreamHandle::none) {
    tensor.completion().result();
    if (!context.sequencer().has_drained(*memory)) {
      throw Error(ErrorCode::busy, fmt::format("Work is in flight on \"{}\"; the consumer's thread waits for it before "
                                               "the tensor is handed over.",
                                               memory->label()));
    }
    return;
  }
  foreign::require_stream(context, exported.stream);
  const std::uint64_t begin = DeviceTensorAccess::offset(tensor);
  const std::array uses{TrackedUse{memory.get(), begin, begin + tensor.desc().bytes(), exported.access}};
  // Reserved for a moment: whoever asked next would be ordered behind the consumer, of whom nothing is queued yet.
  const auto reservation =
      context.sequencer().try_reserve({.uses = uses, .producers = {&tensor.completion(), 1}}, exported.stream);
  if (!reservation) throw Error(ErrorCode::busy, "What produces the tensor waits for the host.");
  context.sequencer().end(uses, *reservation);
}

// --- Imports -------------------------------------------------------------------------------------

std::string describe(const DLDevice& device) {
  return fmt::format("device {} of DLPack's type {}", device.device_id, static_cast<std::int32_t>(device.device_type));
}

void require_device(const DLDevice& given, Device device) {
  const DLDevice wanted = device_of(device, Placement::device);
  if (given.device_type == wanted.device_type && given.device_id == wanted.device_id) return;
  refuse(fmt::format("The tensor is on {}; the context of {} takes those on {}.", describe(given), to_string(device),
                     describe(wanted)));
}

std::uint64_t dimension(const DLTensor& tensor, std::size_t index) {
  const std::int64_t size = tensor.shape[index];
  if (size < 0) refuse(fmt::format("Dimension {} is {}.", index, size));
  return static_cast<std::uint64_t>(size);
}

TensorDesc desc_of(const DLTensor& tensor) {
  const DType dtype = dtype_of(tensor.dtype);
  if (tensor.ndim < 0) refuse(fmt::format("The tensor has {} dimensions.", tensor.ndim));
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  if (rank > 0 && tensor.shape == nullptr) refuse(fmt::format("The shape of the {} dimensions is null.", rank));
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i) shape.push_back(dimension(tensor, i));
  const bool is_empty = std::ranges::find(shape, 0u) != shape.end();
  if (tensor.strides == nullptr || is_empty) return {dtype, std::move(shape)};
  Strides strides;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t stride = shape[i] == 1 ? 1 : tensor.strides[i];
    if (stride <= 0) {
      refuse(fmt::format("The stride of dimension {} is {}; weft has tensors whose strides are 1 or more.", i, stride));
    }
    strides.push_back(static_cast<std::uint64_t>(stride));
  }
  return {dtype, std::move(shape), std::move(strides)};
}

DeviceAddress address_of(const DLTensor& tensor, const TensorDesc& desc) {
  if (tensor.data == nullptr) refuse(fmt::format("The data of {} are at a null pointer.", to_string(desc)));
  const auto address = checked_add(reinterpret_cast<std::uintptr_t>(tensor.data), tensor.byte_offset);
  if (!address) refuse(fmt::format("The byte offset {} leaves the address space.", tensor.byte_offset));
  if (*address % size_of(desc.dtype()) != 0) {
    refuse(fmt::format("The tensor {} starts at {:#x}, which is no multiple of its element size, {}.", to_string(desc),
                       *address, size_of(desc.dtype())));
  }
  return *address;
}

DeviceTensor adopt(const std::shared_ptr<ContextState>& context, DLManagedTensorVersioned& managed,
                   StreamHandle stream) {
  const TensorDesc desc = desc_of(managed.dl_tensor);
  require_device(managed.dl_tensor.device, context->device());
  const auto release = [&managed] {
    if (managed.deleter != nullptr) managed.deleter(&managed);
  };
  if (desc.is_empty()) {
    DeviceTensor tensor = DeviceTensorAccess::in_memory(desc, nullptr, 0, {});
    release();
    return tensor;
  }
  const DeviceAddress address = address_of(managed.dl_tensor, desc);
  // From a multiple of weft's alignment on, as its own memory is.
  const std::uint64_t offset = address % kArenaAlignment;
  const std::uint64_t bytes = offset + desc.bytes();
  const std::shared_ptr<BufferStorage> storage = adopt_memory(context, address - offset, bytes, "imported tensor");
  const std::shared_ptr<TrackedMemory> memory = BufferStorage::track(storage);
  if ((managed.flags & kReadOnlyFlag) != 0) memory->forbid_writes();
  Completion ready;
  if (stream != StreamHandle::none) {
    const TrackedUse use{memory.get(), offset, bytes, Access::write};
    ready = context->transfers().fence(foreign::record(*context, stream).get(), {&use, 1});
  }
  DeviceTensor tensor = DeviceTensorAccess::in_memory(desc, memory, offset, std::move(ready));
  storage->on_release(release);  // Last: on an error the tensor stays its owner's.
  return tensor;
}

}  // namespace

DLManagedTensorVersioned* export_tensor(const DeviceTensor& tensor, void* stream, ExportOptions options) {
  return in_context(
      [&] { return fmt::format("exporting {}", to_string(tensor.desc())); },
      [&] {
        if (DeviceTensorAccess::is_in_graph(tensor))
          refuse("A tensor of an unprepared graph has no bytes that others could use.");
        const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
        auto exported = std::make_unique<Exported>(Exported{.managed = {},
                                                            .shape = signed_copy(tensor.desc().shape()),
                                                            .strides = signed_copy(tensor.desc().strides()),
                                                            .tensor = tensor});
        exported->access = options.read_only ? Access::read : Access::read_write;
        DLManagedTensorVersioned& managed = exported->managed;
        managed.version = {kMajorVersion, kMinorVersion};
        managed.manager_ctx = exported.get();
        managed.deleter = &give_back;
        managed.flags = options.read_only ? kReadOnlyFlag : 0;
        managed.dl_tensor = {.data = nullptr,
                             .device = {kDLCPU, 0},
                             .ndim = static_cast<std::int32_t>(exported->shape.size()),
                             .dtype = type_of(tensor.desc().dtype()),
                             .shape = exported->shape.data(),
                             .strides = exported->strides.data(),
                             .byte_offset = 0};
        if (memory != nullptr) {
          const Device device = memory->home().device();
          exported->stream = handle_of(memory->home(), stream);
          if (device.kind == Device::Kind::cuda && exported->stream == kPerThreadStream)
            refuse("The per-thread default stream is another one on the thread that gives the tensor back.");
          managed.dl_tensor.device = device_of(device, memory->placement());
          // With the offset in it: libraries in use overlook `byte_offset`.
          managed.dl_tensor.data = reinterpret_cast<void*>(memory->address() + DeviceTensorAccess::offset(tensor));
        }
        hand_over(*exported);
        return &exported.release()->managed;
      });
}

DeviceTensor import_tensor(const Context& context, DLManagedTensorVersioned* managed, void* stream) {
  if (managed == nullptr) refuse("The tensor to import is null.");
  if (managed->version.major != kMajorVersion) {
    throw Error(ErrorCode::unsupported, fmt::format("The tensor to import is of DLPack {}.{}; weft takes those of {}.",
                                                    managed->version.major, managed->version.minor, kMajorVersion));
  }
  const std::shared_ptr<ContextState>& state = ContextAccess::state(context);
  return in_context([] { return "importing a tensor"; },
                    [&] { return adopt(state, *managed, handle_of(*state, stream)); });
}

}  // namespace weft::dlpack
