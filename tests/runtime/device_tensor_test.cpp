#include "catch.h"
#include "device_tensor_access.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace weft::test {
namespace {

DeviceTensor in_a_graph(const TensorDesc& desc) { return DeviceTensorAccess::in_graph(desc, 7, 3, 64); }

std::vector<std::uint8_t> part(const std::vector<std::uint8_t>& bytes, std::uint64_t from, std::uint64_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

/// Refuses with `invalid`; its last words are `ending`.
template <class Call>
void check_invalid(Call&& call, std::string_view ending) {
  const Error error = refusal(std::forward<Call>(call));
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), ending));
}

}  // namespace

TEST_CASE("A tensor of a context is zeroed and an empty one has no memory", "[runtime][tensor][R1][R36]") {
  const Context context = open_context();
  CHECK(values(context.tensor({DType::i64, {3, 5}})) == std::vector<std::uint8_t>(120, 0));
  CHECK(values(context.tensor({DType::f32, {}}, {.label = "scalar", .placement = Placement::shared})) ==
        std::vector<std::uint8_t>(4, 0));
  const std::uint64_t allocations = context.memory().requested.allocations;
  const DeviceTensor empty = context.tensor({DType::f64, {1000, 0, std::uint64_t{1} << 40}});
  CHECK(empty.completion().is_done());
  CHECK(values(empty).empty());
  CHECK(context.memory().requested.allocations == allocations);
}

TEST_CASE("An upload can be read back and its source may go at once", "[runtime][tensor][R37]") {
  const Context context = open_context();
  std::vector<std::uint8_t> source = fresh_bytes(100'000, 1);
  const std::vector<std::uint8_t> expected = source;
  const DeviceTensor tensor = upload(context, source);
  std::ranges::fill(source, std::uint8_t{0xee});
  CHECK(values(tensor) == expected);
  const DeviceTensor empty = upload(context, {});
  CHECK(values(empty).empty());
}

TEST_CASE("An upload of other bytes than the descriptor's is refused and changes nothing", "[runtime][tensor][R37]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(15, 1);
  const MemoryStatistics before = context.memory();
  const Error error = refusal([&] {
    static_cast<void>(context.upload({TensorDesc(DType::f32, {4}), std::as_bytes(std::span(source)), "x"}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The tensor f32[4] has 16 bytes; 15 are given.");
  CHECK(error.contexts() == std::vector<std::string>{"uploading the tensor \"x\""});
  CHECK(context.memory() == before);
}

TEST_CASE("A view means a part of the same bytes", "[runtime][tensor][R36]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  std::optional<DeviceTensor> whole = upload(context, source);
  const DeviceTensor view = whole->view(bytes_desc(20), 30);
  const DeviceTensor inner = view.view({DType::u32, {2}}, 2);
  whole.reset();
  CHECK(values(view) == part(source, 30, 20));
  CHECK(values(inner) == part(source, 32, 8));
  CHECK(values(view.view(bytes_desc(0), 20)).empty());
}

TEST_CASE("A view that leaves its tensor or is misaligned is refused", "[runtime][tensor][R7][R36]") {
  const Context context = open_context();
  for (const DeviceTensor& tensor : {context.tensor(bytes_desc(64)), in_a_graph(bytes_desc(64))}) {
    check_invalid(
        [&] {
          static_cast<void>(tensor.view({DType::f32, {4}}, 52));
        },
        "The tensor f32[4] of 16 bytes at byte 52 leaves the 64 bytes of u8[64].");
    check_invalid([&] { static_cast<void>(tensor.view(bytes_desc(2), std::numeric_limits<std::uint64_t>::max())); },
                  "leaves");
    check_invalid([&] { static_cast<void>(tensor.view(bytes_desc(0), 65)); }, "leaves");
    check_invalid(
        [&] {
          static_cast<void>(tensor.view({DType::f64, {1}}, 4));
        },
        "it starts at multiples of its element size, 8.");
    CHECK(tensor.view({DType::f64, {2}, Strides{7}}).desc().bytes() == 64);
    check_invalid([&] { static_cast<void>(tensor.view({DType::f64, {2}, Strides{8}})); }, "leaves");
  }
}

TEST_CASE("Only a tensor of a graph is a region", "[runtime][tensor]") {
  const TensorRegion region = in_a_graph(bytes_desc(64)).view({DType::f32, {2}}, 8).region();
  CHECK(region == Region{7, 3, 72, 8});
  CHECK(region.desc == TensorDesc(DType::f32, {2}));
  CHECK(in_a_graph({DType::f32, {2}}).region<float>().desc.count() == 2);
  CHECK(refusal([&] {
          static_cast<void>(in_a_graph({DType::f32, {2}}).region<double>());
        }).code() == ErrorCode::invalid);
  check_invalid([&] { static_cast<void>(open_context().tensor(bytes_desc(4)).region()); },
                "Graph::bind makes it one of the graph");
}

TEST_CASE("A copy goes to the bytes at its offset and to no others", "[runtime][tensor][R37]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> a = fresh_bytes(64, 1);
  std::vector<std::uint8_t> b = fresh_bytes(256, 2);
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const DeviceTensor destination = context.tensor(bytes_desc(256), {.label = "d", .placement = placement});
    static_cast<void>(upload(context, b).copy_into(destination));
    const DeviceTensor copy = upload(context, a).copy_into(destination, 100);
    CHECK(copy.desc() == bytes_desc(64));
    CHECK(values(copy) == a);
    std::vector<std::uint8_t> expected = b;
    std::ranges::copy(a, expected.begin() + 100);
    CHECK(values(destination) == expected);
  }
}

TEST_CASE("A copy of a tensor onto itself does nothing", "[runtime][tensor][R37][case16]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const DeviceTensor tensor = upload(context, source);
  CHECK(values(tensor.copy_into(tensor)) == source);
  CHECK(values(tensor.view(bytes_desc(16), 8).copy_into(tensor, 8)) == part(source, 8, 16));
  CHECK(values(tensor) == source);
}

TEST_CASE("A copy onto a part of itself is refused with both ranges", "[runtime][tensor][R6][case16]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const DeviceTensor tensor = upload(context, source);
  const DeviceTensor low = tensor.view(bytes_desc(32), 4);
  const Error error = refusal([&] { static_cast<void>(low.copy_into(tensor, 5)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The bytes [4, 36) overlap the bytes [5, 37) of the same memory that they are copied to.");
  CHECK(error.contexts() == std::vector<std::string>{"copying u8[32] into u8[64]"});
  CHECK(refusal([&] { static_cast<void>(tensor.view(bytes_desc(32), 32).copy_into(tensor, 1)); }).code() ==
        ErrorCode::invalid);
  CHECK(values(tensor) == source);
  // Neighbours do not overlap.
  CHECK(values(tensor.view(bytes_desc(32)).copy_into(tensor, 32)) == part(source, 0, 32));
}

TEST_CASE("A copy that does not fit its destination is refused and changes nothing",
          "[runtime][tensor][R6][R37][T20]") {
  const Context context = open_context();
  const Context other = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const DeviceTensor destination = upload(context, source);
  const DeviceTensor words = destination.view({DType::u32, {16}});
  const DeviceTensor small = context.tensor(bytes_desc(8));
  const MemoryStatistics before = context.memory();
  check_invalid([&] { static_cast<void>(small.copy_into(words)); },
                "The elements of the one are u8, of the other u32.");
  check_invalid([&] { static_cast<void>(small.copy_into(destination, 57)); }, "leaves the 64 bytes of u8[64].");
  check_invalid(
      [&] {
        static_cast<void>(words.view({DType::u32, {2}}).copy_into(words, 6));
      },
      "it starts at multiples of its element size, 4.");
  check_invalid([&] { static_cast<void>(other.tensor(bytes_desc(8)).copy_into(destination)); },
                "The two tensors belong to different contexts.");
  check_invalid(
      [&] {
        static_cast<void>(small.view({DType::u8, {2}, Strides{4}}).copy_into(destination));
      },
      "The tensor u8[2] strides [4] is not contiguous.");
  check_invalid(
      [&] {
        static_cast<void>(small.copy_into(destination.view({DType::u8, {2}, Strides{32}})));
      },
      "is not contiguous.");
  check_invalid([&] { static_cast<void>(small.copy_into(in_a_graph(bytes_desc(8)))); },
                "A tensor of an unprepared graph has no bytes to copy");
  check_invalid([&] { static_cast<void>(in_a_graph(bytes_desc(8)).copy_into(small)); },
                "A tensor of an unprepared graph has no bytes to copy");
  CHECK(context.memory().requested == before.requested);
  CHECK(values(destination) == source);
  CHECK(values(small.copy_into(destination)) == std::vector<std::uint8_t>(8, 0));
}

TEST_CASE("An empty copy is done at once", "[runtime][tensor][R37]") {
  const Context context = open_context();
  const DeviceTensor destination = context.tensor(bytes_desc(8));
  const DeviceTensor copy = context.tensor(bytes_desc(0)).copy_into(destination, 8);
  CHECK(copy.desc().is_empty());
  CHECK(values(copy).empty());
  CHECK(refusal([&] { static_cast<void>(copy.copy_into(destination, 9)); }).code() == ErrorCode::invalid);
}

TEST_CASE("Reversed views are concatenated with an empty one when their source is gone",
          "[runtime][tensor][R37][T20]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(60, 1);
  std::vector<DeviceTensor> views;
  {
    const DeviceTensor whole = upload(context, source);
    views.push_back(whole.view({DType::u8, {2, 10}}, 40));
    views.push_back(whole.view({DType::u8, {0, 10}}));
    views.push_back(whole.view({DType::u8, {3, 10}}, 10));
    views.push_back(whole.view({DType::u8, {1, 10}}));
  }
  const DeviceTensor joined = context.concatenate(views);
  views.clear();
  CHECK(joined.desc() == TensorDesc(DType::u8, {6, 10}));
  std::vector<std::uint8_t> expected = part(source, 40, 20);
  for (const auto& piece : {part(source, 10, 30), part(source, 0, 10)})
    expected.insert(expected.end(), piece.begin(), piece.end());
  CHECK(values(joined) == expected);
  CHECK(eventually([&] { return context.memory().requested.live_bytes == 60; }));
}

TEST_CASE("A concatenation of empty tensors is empty and of one tensor is a copy", "[runtime][tensor][R37]") {
  const Context context = open_context();
  const DeviceTensor none = context.tensor({DType::f32, {0, 4}});
  CHECK(context.concatenate({none, none}).desc() == TensorDesc(DType::f32, {0, 4}));
  const std::vector<std::uint8_t> source = fresh_bytes(16, 1);
  const DeviceTensor one = upload(context, source);
  const DeviceTensor copy = context.concatenate({one});
  static_cast<void>(context.tensor(bytes_desc(16)).copy_into(one));
  CHECK(values(copy) == source);
  std::vector<std::uint8_t> twice = source;
  twice.insert(twice.end(), source.begin(), source.end());
  CHECK(values(context.concatenate({copy, copy})) == twice);
}

TEST_CASE("Tensors that do not fit together are not concatenated", "[runtime][tensor][R6][R37][T20]") {
  const Context context = open_context();
  const DeviceTensor a = context.tensor({DType::f32, {2, 4}});
  const MemoryStatistics before = context.memory();
  const auto check_refused = [&](const std::vector<DeviceTensor>& tensors, std::string_view ending) {
    check_invalid([&] { static_cast<void>(context.concatenate(tensors)); }, ending);
  };
  check_refused({}, "No tensors are given; at least 1 is needed.");
  check_refused({a.view({DType::f32, {}})}, "Tensor 0 is the scalar f32[], which has no dimension to join along.");
  check_refused({a, a.view({DType::i32, {2, 4}})},
                "Tensor 1 is i32[2,4] and tensor 0 is f32[2,4]; they may differ in their first dimension alone.");
  check_refused({a, a.view({DType::f32, {4, 2}})}, "they may differ in their first dimension alone.");
  check_refused({a, a.view({DType::f32, {8}})}, "they may differ in their first dimension alone.");
  check_refused({a, a.view({DType::f32, {0, 5}})}, "they may differ in their first dimension alone.");
  check_refused({a.view({DType::f32, {1, 1, 2, 4}, Layout::nchw}), a.view({DType::f32, {1, 1, 2, 4}, Layout::nhwc})},
                "they may differ in their first dimension alone.");
  check_refused({a, a.view({DType::f32, {2, 3}, Strides{4, 1}})}, "alone.");
  check_refused({a.view({DType::f32, {2, 3}, Strides{4, 1}})}, "is not contiguous.");
  check_refused({a, open_context().tensor({DType::f32, {2, 4}})}, "Tensor 1 belongs to another context.");
  check_refused({a, in_a_graph({DType::f32, {2, 4}})}, "Tensor 1 is one of an unprepared graph.");
  const DeviceTensor huge = a.view({DType::f32, {std::uint64_t{1} << 63, 0}});
  check_refused({huge, huge}, "The first dimensions add up to 2^64 or more.");
  CHECK(context.memory().requested == before.requested);
  CHECK(values(context.concatenate({a, a})) == std::vector<std::uint8_t>(64, 0));
}

TEST_CASE("Tensors keep their context and their memory", "[runtime][tensor]") {
  const std::vector<std::uint8_t> source = fresh_bytes(16, 1);
  std::optional<Context> context = open_context();
  std::optional<DeviceTensor> tensor = upload(*context, source);
  context.reset();
  CHECK(values(*tensor) == source);
  const Completion completion = tensor->completion();
  tensor.reset();
  CHECK(completion.is_done());
  CHECK(completion.wait(past()));
}

}  // namespace weft::test
