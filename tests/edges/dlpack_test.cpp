#include "catch.h"
#include "device_memory.h"
#include "support/device.h"
#include "support/foreign_stream.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/dlpack.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// PyTorch as the other library: scripts/dlpack_exchange.

namespace weft::test {
namespace {

using namespace dlpack;

constexpr std::uint64_t kCount = 64;
using Values = std::vector<std::uint8_t>;
using Dimensions = std::vector<std::int64_t>;

Values repeated(std::uint8_t value) { return Values(kCount, value); }

struct GivesBack {
  void operator()(DLManagedTensorVersioned* managed) const { managed->deleter(managed); }
};
using Exported = std::unique_ptr<DLManagedTensorVersioned, GivesBack>;

Exported exported(const DeviceTensor& tensor, void* stream = nullptr, ExportOptions options = {}) {
  return Exported(export_tensor(tensor, stream, options));
}

/// A tensor of another library: bytes that hold a pattern, described in every detail that a test wants to change.
class Library {
 public:
  explicit Library(const Context& context, const Values& values = fresh_bytes(1024, 1))
      : context_(context),
        domain_(std::make_shared<AllocationDomain>(ContextAccess::state(context)->domain()->api(), Allocator{},
                                                   std::nullopt)),
        memory_(domain_, domain_->stream(), values.size(), "the test") {
    copy_now(*domain_->api(), domain_->stream(),
             {memory_.address(), reinterpret_cast<DeviceAddress>(values.data()), values.size()}, "fill memory");
    managed.version = {1, 3};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Library*>(self->manager_ctx)->deleted; };
    managed.dl_tensor = {.data = reinterpret_cast<void*>(memory_.address()),
                         .device = {on_cuda() ? kDLCUDA : kDLCPU, 0},
                         .ndim = 1,
                         .dtype = {kDLUInt, 8, 1},
                         .shape = nullptr,
                         .strides = nullptr,
                         .byte_offset = 0};
    describe({static_cast<std::int64_t>(kCount)}, {1});
  }

  void describe(Dimensions shape, Dimensions strides) {
    shape_ = std::move(shape);
    strides_ = std::move(strides);
    managed.dl_tensor.ndim = static_cast<std::int32_t>(shape_.size());
    managed.dl_tensor.shape = shape_.data();
    managed.dl_tensor.strides = strides_.empty() ? nullptr : strides_.data();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  /// weft calls back once what it queued on the memory has drained.
  ~Library() {
    if (is_lent_) CHECK(eventually([&] { return is_released(); }));
  }

  [[nodiscard]] DeviceAddress address() const noexcept { return memory_.address(); }
  /// For an import that is taken.
  [[nodiscard]] DLManagedTensorVersioned* lend() noexcept {
    is_lent_ = managed.deleter != nullptr;
    return &managed;
  }
  [[nodiscard]] bool is_released() const {
    static_cast<void>(context_.memory());  // Lets go of what has drained.
    return deleted == 1;
  }

  DLManagedTensorVersioned managed{};
  int deleted = 0;

 private:
  Context context_;
  bool is_lent_ = false;
  std::shared_ptr<AllocationDomain> domain_;
  DeviceMemory memory_;
  Dimensions shape_;
  Dimensions strides_;
};

/// The whole text of the refusal of an import, which must leave the tensor its owner's.
std::string refused_import(const Context& context, const std::function<void(Library&)>& change,
                           ErrorCode code = ErrorCode::invalid) {
  Library library(context);
  change(library);
  const Error error = refusal([&] { static_cast<void>(import_tensor(context, &library.managed)); });
  CHECK(error.code() == code);
  CHECK(library.deleted == 0);
  return error.what();
}

}  // namespace

TEST_CASE("An exported tensor says what it is", "[edges][dlpack]") {
  const Context context = open_context();
  const Values bytes = fresh_bytes(256, 1);
  const DeviceTensor whole = ready(context, bytes);
  const auto check_type = [&](DType dtype, std::uint8_t code, std::uint8_t bits) {
    const Exported tensor = exported(whole.view(TensorDesc(dtype, {2, 3})));
    CHECK(tensor->dl_tensor.dtype.code == code);
    CHECK(tensor->dl_tensor.dtype.bits == bits);
    CHECK(tensor->dl_tensor.dtype.lanes == 1);
  };
  check_type(DType::u8, 1, 8);
  check_type(DType::i8, 0, 8);
  check_type(DType::i32, 0, 32);
  check_type(DType::u32, 1, 32);
  check_type(DType::i64, 0, 64);
  check_type(DType::f16, 2, 16);
  check_type(DType::bf16, 4, 16);
  check_type(DType::f32, 2, 32);
  check_type(DType::f64, 2, 64);

  const DeviceTensor strided = whole.view(TensorDesc(DType::f32, {2, 3}, Strides{1, 4}), 16);
  const Exported tensor = exported(strided);
  CHECK(tensor->version.major == 1);
  CHECK(tensor->flags == 0);
  const DLTensor& inner = tensor->dl_tensor;
  CHECK(Dimensions(inner.shape, inner.shape + inner.ndim) == Dimensions{2, 3});
  CHECK(Dimensions(inner.strides, inner.strides + inner.ndim) == Dimensions{1, 4});
  CHECK(inner.device.device_type == (on_cuda() ? kDLCUDA : kDLCPU));
  CHECK(inner.device.device_id == 0);
  CHECK(reinterpret_cast<DeviceAddress>(inner.data) + inner.byte_offset == address_of(strided));
  CHECK(exported(strided, nullptr, {.read_only = true})->flags == kReadOnlyFlag);
}

TEST_CASE("Shared memory is exported as host memory and an empty tensor without any", "[edges][dlpack]") {
  const Context context = open_context();
  const DeviceTensor shared = context.tensor(bytes_desc(4), {.placement = Placement::shared});
  CHECK(exported(shared)->dl_tensor.device.device_type == (on_cuda() ? kDLCUDAHost : kDLCPU));
  const Exported empty = exported(context.tensor(TensorDesc(DType::f32, {3, 0})));
  CHECK(empty->dl_tensor.data == nullptr);
  CHECK(empty->dl_tensor.ndim == 2);
  CHECK(empty->dl_tensor.shape[1] == 0);
}

TEST_CASE("A consumer on the calling thread is not handed what is in flight", "[edges][dlpack][host-only]") {
  const HeldContext held;
  const DeviceTensor source = ready(held.context, repeated(1));
  const DeviceTensor target = ready(held.context, repeated(0));
  held.device->hold();
  const DeviceTensor copy = source.copy_into(target);
  CHECK(refusal([&] { static_cast<void>(export_tensor(copy)); }).code() == ErrorCode::busy);
  const Error busy = refusal([&] { static_cast<void>(export_tensor(target)); });
  CHECK(busy.code() == ErrorCode::busy);
  CHECK(busy.contexts() == std::vector<std::string>{"exporting u8[64]"});
  held.device->drain();
  REQUIRE(copy.wait(in_a_minute()));
  const Exported tensor = exported(copy);
  const auto* bytes = static_cast<const std::uint8_t*>(tensor->dl_tensor.data);
  CHECK(Values(bytes, bytes + kCount) == repeated(1));
}

TEST_CASE("A consumer's stream follows what it is handed and the slot's next run follows the consumer",
          "[edges][dlpack][R22][case-13][host-only]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
    const ForeignStream stream(held.context);
    std::vector<DeviceTensor> sinks;
    for (std::uint64_t round = 0; round < 20; ++round) sinks.push_back(ready(held.context, repeated(0)));
    for (std::uint64_t round = 0; round < sinks.size(); ++round) {
      Exported tensor = exported(start(pool, kHostDevice, fresh_bytes(kCount, round)).tensor(0), stream.native());
      CHECK(!pool.try_acquire().has_value());
      check(stream.api().copy(stream.handle(), {address_of(sinks[round]),
                                                reinterpret_cast<DeviceAddress>(tensor->dl_tensor.data), kCount}),
            "copy");
      std::thread([&] { tensor.reset(); }).join();
    }
    stream.wait();
    for (std::uint64_t round = 0; round < sinks.size(); ++round)
      CHECK(values(sinks[round]) == xored(fresh_bytes(kCount, round), 0xff));
  }
}

TEST_CASE("A slot is free when the consumer of its output gives it back though its stream has not come so far",
          "[edges][dlpack][R22][case-13][host-only]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
    const ForeignStream stream(held.context);
    const DeviceTensor sink = ready(held.context, repeated(0));
    std::optional<Inference> run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
    REQUIRE(run->wait(in_a_minute()));
    const DeviceAddress output = address_of(run->tensor(0));
    Exported tensor = exported(run->tensor(0), stream.native());
    run.reset();
    held.device->hold();
    check(stream.api().copy(stream.handle(), {address_of(sink), output, kCount}), "copy");
    CHECK(!pool.try_acquire().has_value());
    tensor.reset();
    CHECK(!stream.has_drained());
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    std::ranges::copy(fresh_bytes(kCount, 2), slot->input<std::uint8_t>(0).begin());
    const Inference next = std::move(*slot).submit();
    held.device->drain();
    CHECK(values(next.tensor(0)) == xored(fresh_bytes(kCount, 2), 0xff));
    CHECK(values(sink) == xored(fresh_bytes(kCount, 1), 0xff));
  }
}

TEST_CASE("What a consumer wrote to a buffer comes before what weft writes after it gave it back",
          "[edges][dlpack][R14][host-only]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    const ForeignStream stream(held.context);
    const DeviceTensor target = ready(held.context, repeated(1));
    const DeviceTensor other = ready(held.context, repeated(2));
    held.device->hold();
    const DeviceTensor before = other.copy_into(target);
    Exported tensor = exported(target, stream.native());
    stream.copy(other, target);  // Reads what was in flight.
    stream.fill(target, 3);
    tensor.reset();
    const DeviceTensor after = target.copy_into(held.context.tensor(target.desc()));
    held.device->drain();
    REQUIRE(before.wait(in_a_minute()));
    REQUIRE(after.wait(in_a_minute()));
    CHECK(values(after) == repeated(3));
    CHECK(values(other) == repeated(2));
  }
}

TEST_CASE("A tensor is handed over neither before its launch nor while the host maps it", "[edges][dlpack]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  const Context& context = pool.context();
  const ForeignStream stream(context);
  CompletionSource source(context, "tokens");
  std::optional<ModelSlot> slot = pool.try_acquire();
  std::ranges::copy(repeated(1), slot->input<std::uint8_t>(0).begin());
  const Inference run = std::move(*slot).submit({.after = {source.completion()}});
  CHECK(refusal([&] { static_cast<void>(export_tensor(run.tensor(0), stream.native())); }).code() == ErrorCode::busy);
  source.fail(nullptr);
  CHECK(eventually([&] { return run.completion().is_done(); }));
  CHECK(refusal([&] { static_cast<void>(export_tensor(run.tensor(0), stream.native())); }).code() == ErrorCode::failed);

  const Buffer buffer = context.allocate(kCount, {.placement = Placement::shared});
  const std::optional<WriteGuard> guard = buffer.map_write(in_a_minute());
  REQUIRE(guard.has_value());
  CHECK(refusal([&] { static_cast<void>(export_tensor(buffer.tensor(bytes_desc(kCount)), stream.native())); }).code() ==
        ErrorCode::busy);
  Graph graph(context);
  CHECK(refusal([&] { static_cast<void>(export_tensor(graph.tensor<std::uint8_t>({4}))); }).code() ==
        ErrorCode::invalid);
}

TEST_CASE("A consumer may be the last of all to give back", "[edges][dlpack][R22]") {
  std::optional<Context> context = open_context();
  std::optional<ForeignStream> stream;
  stream.emplace(*context);
  Exported tensor;
  {
    PreparedModel pool = XorModel(TestSession(*context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
    tensor = exported(start(pool, kHostDevice, fresh_bytes(kCount, 1)).tensor(0), stream->native());
  }
  context.reset();
  Values read(kCount);
  check(stream->api().copy(stream->handle(), {reinterpret_cast<DeviceAddress>(read.data()),
                                              reinterpret_cast<DeviceAddress>(tensor->dl_tensor.data), kCount}),
        "copy");
  std::thread([&] { tensor.reset(); }).join();
  stream->wait();
  CHECK(read == xored(fresh_bytes(kCount, 1), 0xff));
}

TEST_CASE("Giving a tensor back in a child after fork does nothing", "[edges][dlpack][fork]") {
  const Context context = open_context();
  const ForeignStream stream(context);
  const Exported tensor = exported(ready(context, repeated(1)), stream.native());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    tensor->deleter(tensor.get());
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
}

TEST_CASE("An imported tensor has the other library's bytes and is let go once", "[edges][dlpack]") {
  const Context context = open_context();
  const Values whole = fresh_bytes(1024, 1);
  Library library(context);
  library.describe({3, 4}, {});
  library.managed.dl_tensor.byte_offset = 20;
  {
    const DeviceTensor tensor = import_tensor(context, library.lend());
    CHECK(tensor.desc() == TensorDesc(DType::u8, {3, 4}));
    CHECK(address_of(tensor) == library.address() + 20);
    CHECK(values(tensor) == Values(whole.begin() + 20, whole.begin() + 32));
    const DeviceTensor written = ready(context, Values(12, 5)).view(tensor.desc()).copy_into(tensor);
    REQUIRE(written.wait(in_a_minute()));
    CHECK(library.deleted == 0);
  }
  CHECK(eventually([&] { return library.is_released(); }));
}

TEST_CASE("An imported tensor feeds a request and takes an answer without a copy", "[edges][dlpack]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = {kDeviceDevice}});
  const Context& context = pool.context();
  Library input(context, fresh_bytes(kCount, 1));
  Library output(context, repeated(0));
  {
    const DeviceTensor x = import_tensor(context, input.lend());
    const DeviceTensor y = import_tensor(context, output.lend());
    std::optional<ModelSlot> slot = pool.try_acquire();
    const Inference run = std::move(*slot).submit({x}, SubmitOptions{.into = {y}});
    CHECK(values(run.tensor(0)) == xored(fresh_bytes(kCount, 1), 0xff));
    CHECK(address_of(run.tensor(0)) == output.address());
  }
  CHECK(eventually([&] { return input.is_released() && output.is_released(); }));
}

TEST_CASE("What an imported tensor is made for follows the producer's stream", "[edges][dlpack][host-only]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    const ForeignStream stream(held.context);
    Library library(held.context);
    held.device->hold();
    check(stream.api().fill(stream.handle(), {library.address(), kCount, 8}), "fill");
    std::optional<DeviceTensor> tensor = import_tensor(held.context, library.lend(), stream.native());
    CHECK(!tensor->completion().is_done());
    const DeviceTensor copy = tensor->copy_into(held.context.tensor(tensor->desc()));
    tensor.reset();
    static_cast<void>(held.context.memory());
    CHECK(library.deleted == 0);
    held.device->drain();
    CHECK(values(copy) == repeated(8));
    CHECK(eventually([&] { return library.is_released(); }));
  }
}

TEST_CASE("Strides and shapes of other libraries are taken as they mean them", "[edges][dlpack]") {
  const Context context = open_context();
  const auto desc_of = [&](Dimensions shape, Dimensions strides) {
    Library library(context);
    library.describe(std::move(shape), std::move(strides));
    return import_tensor(context, library.lend()).desc();
  };
  CHECK(desc_of({}, {}) == TensorDesc(DType::u8, {}));
  CHECK(desc_of({2, 3}, {}) == TensorDesc(DType::u8, {2, 3}));
  CHECK(desc_of({2, 3}, {3, 1}) == TensorDesc(DType::u8, {2, 3}));
  CHECK(desc_of({2, 3}, {1, 2}) == TensorDesc(DType::u8, {2, 3}, Strides{1, 2}));
  CHECK(desc_of({1, 3}, {0, 1}) == TensorDesc(DType::u8, {1, 3}));
  CHECK(desc_of({2, 0}, {0, 0}) == TensorDesc(DType::u8, {2, 0}));
}

TEST_CASE("An empty import has no memory and is let go at once", "[edges][dlpack]") {
  const Context context = open_context();
  Library library(context);
  library.describe({4, 0}, {});
  library.managed.dl_tensor.data = nullptr;
  const DeviceTensor tensor = import_tensor(context, library.lend());
  CHECK(tensor.desc().is_empty());
  CHECK(library.deleted == 1);
  CHECK(values(tensor).empty());
}

TEST_CASE("An import without a deleter has nothing to let go", "[edges][dlpack]") {
  const Context context = open_context();
  Library library(context);
  library.managed.deleter = nullptr;
  CHECK(values(import_tensor(context, library.lend())).size() == kCount);
  CHECK(library.deleted == 0);
}

TEST_CASE("Nothing writes an import that is read-only and everything reads it", "[edges][dlpack]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kDeviceDevice}});
  const Context& context = pool.context();
  const ForeignStream stream(context);
  Library library(context, repeated(3));
  library.managed.flags = kReadOnlyFlag;
  const DeviceTensor tensor = import_tensor(context, library.lend());
  const auto refused = [&](const std::function<void()>& write) {
    const Error error = refusal(write);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The buffer \"imported tensor\" was lent to be read; nothing writes it.");
  };
  refused([&] { static_cast<void>(ready(context, repeated(1)).copy_into(tensor)); });
  std::optional<ModelSlot> slot = pool.try_acquire();
  refused([&] { static_cast<void>(std::move(*slot).submit({tensor}, SubmitOptions{.into = {tensor}})); });
  const Inference run = std::move(*slot).submit({tensor});
  CHECK(values(run.tensor(0)) == repeated(3 ^ 0xff));
  CHECK(values(tensor) == repeated(3));
  CHECK(exported(tensor, stream.native(), {.read_only = true})->flags == kReadOnlyFlag);
  refused([&] { static_cast<void>(export_tensor(tensor, stream.native())); });
}

TEST_CASE("Imports that weft cannot use are refused and stay their owner's", "[edges][dlpack]") {
  const Context context = open_context();
  CHECK(refusal([&] { static_cast<void>(import_tensor(context, nullptr)); }).code() == ErrorCode::invalid);
  const auto refused = [&](const std::function<void(DLTensor&)>& change) {
    return refused_import(context, [&](Library& library) { change(library.managed.dl_tensor); });
  };
  CHECK(contains(refused_import(
                     context,
                     [](Library& library) {
                       library.managed.version = {2, 0};
                     },
                     ErrorCode::unsupported),
                 "is of DLPack 2.0; weft takes those of 1."));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.device.device_id = 3; }), "device 3 of DLPack's type"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.device.device_type = static_cast<DLDeviceType>(10); }),
                 "The tensor is on device 0 of DLPack's type 10"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.dtype.lanes = 4; }), "8 bits and 4 lanes"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.dtype = {6, 8, 1}; }), "type code 6"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.dtype.bits = 16; }), "16 bits"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.ndim = -1; }), "has -1 dimensions"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.shape = nullptr; }), "is null"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.shape[0] = -4; }), "Dimension 0 is -4."));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.strides[0] = -1; }), "The stride of dimension 0 is -1"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.strides[0] = 0; }), "The stride of dimension 0 is 0"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.data = nullptr; }), "at a null pointer"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.byte_offset = std::numeric_limits<std::uint64_t>::max(); }),
                 "leaves the address space"));
  CHECK(contains(refused([](DLTensor& tensor) { tensor.shape[0] = 4096; }), "its allocation has 1024 from there on"));
  CHECK(contains(refused([](DLTensor& tensor) {
                   tensor.dtype = {kDLFloat, 32, 1};
                   tensor.byte_offset = 2;
                 }),
                 "is no multiple of its element size, 4."));
  CHECK(contains(refused_import(context, [](Library& library) { library.describe({2, 2}, {1, 1}); }), "stride"));
  static std::uint64_t elsewhere[32];
  CHECK(contains(refused([](DLTensor& tensor) { tensor.data = elsewhere; }), "is no memory of the device"));
}

TEST_CASE("A tensor that went out comes in again with its values", "[edges][dlpack]") {
  const Context context = open_context();
  const DeviceTensor original = ready(context, fresh_bytes(kCount, 9));
  DLManagedTensorVersioned* managed = export_tensor(original.view(bytes_desc(16), 8));
  const Values whole = fresh_bytes(kCount, 9);
  CHECK(values(import_tensor(context, managed)) == Values(whole.begin() + 8, whole.begin() + 24));
}

}  // namespace weft::test
