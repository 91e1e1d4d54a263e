#include "catch.h"
#include <weft/tensor.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using weft::DType;
using weft::Error;
using weft::ErrorCode;
using weft::Layout;
using weft::Shape;
using weft::Strides;
using weft::TensorDesc;
using weft::test::contains;
using weft::test::refusal;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

static_assert(weft::Element<float> && weft::Element<weft::bf16> && weft::Element<std::uint8_t>);
static_assert(!weft::Element<bool> && !weft::Element<long double> && !weft::Element<const float> &&
              !weft::Element<float*>);
static_assert(sizeof(weft::f16) == 2 && sizeof(weft::bf16) == 2);

template <class T>
bool has_size_of_its_dtype() {
  return sizeof(T) == weft::size_of(weft::DTypeOf<T>::value);
}

TEST_CASE("A DType has the size of its C++ type", "[words][tensor]") {
  CHECK(has_size_of_its_dtype<std::uint8_t>());
  CHECK(has_size_of_its_dtype<std::int8_t>());
  CHECK(has_size_of_its_dtype<std::int32_t>());
  CHECK(has_size_of_its_dtype<std::uint32_t>());
  CHECK(has_size_of_its_dtype<std::int64_t>());
  CHECK(has_size_of_its_dtype<weft::f16>());
  CHECK(has_size_of_its_dtype<weft::bf16>());
  CHECK(has_size_of_its_dtype<float>());
  CHECK(has_size_of_its_dtype<double>());
}

TEST_CASE("Every DType and layout has a name of its own", "[words][tensor]") {
  std::set<std::string_view> names;
  for (int dtype = 0; dtype <= static_cast<int>(DType::f64); ++dtype)
    names.insert(to_string(static_cast<DType>(dtype)));
  CHECK(names == std::set<std::string_view>{"u8", "i8", "i32", "u32", "i64", "f16", "bf16", "f32", "f64"});
  CHECK(to_string(Layout::plain) == "plain");
  CHECK(to_string(Layout::nchw) == "nchw");
  CHECK(to_string(Layout::nhwc) == "nhwc");
}

TEST_CASE("Counts and extents follow shape and strides", "[words][tensor][R36][T22]") {
  struct Row {
    const char* what;
    TensorDesc desc;
    std::uint64_t count;
    std::uint64_t bytes;
    bool contiguous;
  };
  const std::vector<Row> rows = {
      {"scalar", TensorDesc(DType::f64, {}), 1, 8, true},
      {"vector", TensorDesc(DType::u8, {7}), 7, 7, true},
      {"matrix", TensorDesc(DType::f32, {32, 64}), 2048, 8192, true},
      {"contiguous strides given", TensorDesc(DType::f16, {2, 3}, Strides{3, 1}), 6, 12, true},
      {"padded rows", TensorDesc(DType::f32, {3, 5}, Strides{8, 1}), 15, (2 * 8 + 4 + 1) * 4, false},
      {"every second element", TensorDesc(DType::f32, {4}, Strides{2}), 4, 28, false},
      {"transposed", TensorDesc(DType::f32, {5, 3}, Strides{1, 5}), 15, 60, false},
      {"transposed and padded", TensorDesc(DType::i64, {3, 2, 4}, Strides{1, 16, 4}), 24, (2 + 16 + 12 + 1) * 8, false},
      {"stride of a dimension of one", TensorDesc(DType::f32, {1, 4}, Strides{1, 1}), 4, 16, true},
      {"huge stride of a dimension of one", TensorDesc(DType::f32, {4, 1}, Strides{1, kLargest}), 4, 16, true},
      {"empty", TensorDesc(DType::f32, {0}), 0, 0, true},
      {"empty in the middle", TensorDesc(DType::f32, {4, 0, 4}), 0, 0, true},
      {"empty and huge", TensorDesc(DType::f64, {kHuge, kHuge, 0, kLargest}), 0, 0, true},
      {"empty with strides that would overlap", TensorDesc(DType::f32, {0, 4, 4}, Strides{1, 1, 1}), 0, 0, true},
      {"largest", TensorDesc(DType::u8, {kLargest}), kLargest, kLargest, true},
      {"largest span", TensorDesc(DType::u8, {2}, Strides{kLargest - 1}), 2, kLargest, false},
      {"nchw", TensorDesc(DType::f32, {2, 3, 4, 5}, Layout::nchw), 120, 480, true},
  };
  for (const Row& row : rows) {
    INFO(row.what << ": " << to_string(row.desc));
    CHECK(row.desc.count() == row.count);
    CHECK(row.desc.bytes() == row.bytes);
    CHECK(row.desc.is_contiguous() == row.contiguous);
    CHECK(row.desc.is_empty() == (row.count == 0));
    CHECK(row.desc.strides().size() == row.desc.shape().size());
  }
}

TEST_CASE("Descriptors that describe no memory are refused", "[words][tensor][R36][T22]") {
  struct Row {
    Shape shape;
    Strides strides;
    const char* sentence;
  };
  const std::vector<Row> rows = {
      {{2, 3}, {3, 0}, "The stride of dimension 1 of the tensor f32[2,3] is zero."},
      {{1}, {0}, "The stride of dimension 0 of the tensor f32[1] is zero."},
      {{0, 3}, {0, 1}, "The stride of dimension 0 of the tensor f32[0,3] is zero."},
      {{2, 3}, {3}, "The tensor f32[2,3] has 2 dimensions and 1 strides."},
      {{}, {1}, "The tensor f32[] has 0 dimensions and 1 strides."},
      {{2, 3},
       {1, 1},
       "The strides [1,1] of the tensor f32[2,3] overlap: dimension 1 steps by 1 elements, and the dimensions inside "
       "it span 2."},
      {{4, 5},
       {4, 1},
       "The strides [4,1] of the tensor f32[4,5] overlap: dimension 0 steps by 4 elements, and the dimensions inside "
       "it span 5."},
      {{2, kHuge}, {kHuge, 1}, "The tensor f32[2,9223372036854775808] spans 9223372036854775808"},
      {{3}, {kHuge}, "The tensor f32[3] with strides [9223372036854775808] spans 2^64 elements or more."},
      {{2}, {kLargest}, "The tensor f32[2] with strides [18446744073709551615] spans 2^64 elements or more."},
      {{2}, {kHuge}, "The tensor f32[2] spans 9223372036854775809 elements: 2^64 bytes or more."},
  };
  for (const Row& row : rows) {
    const std::string wanted = row.sentence;
    INFO(wanted);
    const Error error = refusal([&] { TensorDesc(DType::f32, row.shape, row.strides); });
    CHECK(error.code() == ErrorCode::invalid);
    if (wanted.back() == '.') {
      CHECK(error.sentence() == wanted);
    }
  }
}

TEST_CASE("A contiguous tensor of 2^64 bytes or more is refused", "[words][tensor][R36][T22]") {
  const Error elements = refusal([] { TensorDesc(DType::u8, {kHuge, 2}); });
  CHECK(elements.code() == ErrorCode::invalid);
  CHECK(elements.sentence() == "The tensor u8[9223372036854775808,2] has 2^64 elements or more.");

  const Error bytes = refusal([] { TensorDesc(DType::f32, {std::uint64_t{1} << 62}); });
  CHECK(bytes.code() == ErrorCode::invalid);
  CHECK(bytes.sentence() ==
        "The tensor f32[4611686018427387904] spans 4611686018427387904 elements: 2^64 bytes or more.");
  CHECK(TensorDesc(DType::f32, {(std::uint64_t{1} << 62) - 1}).bytes() == kLargest - 3);
}

TEST_CASE("A layout of another rank is refused", "[words][tensor][R36]") {
  const Error error = refusal([] { TensorDesc(DType::f32, {3, 4, 5}, Layout::nhwc); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The layout nhwc needs 4 dimensions; the tensor f32[3,4,5] has 3.");
  CHECK_NOTHROW(TensorDesc(DType::f32, {0, 3, 4, 5}, Layout::nhwc));
}

TEST_CASE("An element type or a layout that is none is refused", "[words][tensor]") {
  const Error dtype = refusal([] { TensorDesc(static_cast<DType>(9), {4}); });
  CHECK(dtype.code() == ErrorCode::invalid);
  CHECK(dtype.sentence() == "The element type of a tensor is 9, which is none.");
  const Error layout = refusal([] { TensorDesc(DType::f32, {1, 1, 1, 1}, static_cast<Layout>(3)); });
  CHECK(layout.code() == ErrorCode::invalid);
  CHECK(layout.sentence() == "The layout of a tensor is 3, which is none.");
}

TEST_CASE("Descriptors are equal when every field is", "[words][tensor]") {
  const TensorDesc desc(DType::f32, {2, 3, 4, 5});
  CHECK(desc == TensorDesc(DType::f32, {2, 3, 4, 5}, Strides{60, 20, 5, 1}));
  CHECK(desc != TensorDesc(DType::i32, {2, 3, 4, 5}));
  CHECK(desc != TensorDesc(DType::f32, {2, 3, 5, 4}));
  CHECK(desc != TensorDesc(DType::f32, {2, 3, 4, 5}, Strides{64, 20, 5, 1}));
  CHECK(desc != TensorDesc(DType::f32, {2, 3, 4, 5}, Layout::nchw));
}

TEST_CASE("The stride of a dimension of 1 makes no difference", "[words][tensor][R36]") {
  CHECK(TensorDesc(DType::f32, {1, 64}, Strides{128, 1}) == TensorDesc(DType::f32, {1, 64}));
  CHECK(TensorDesc(DType::f32, {4, 1, 3}, Strides{3, 1000, 1}) == TensorDesc(DType::f32, {4, 1, 3}));
  CHECK(TensorDesc(DType::f32, {1}, Strides{7}) == TensorDesc(DType::f32, {1}));
  CHECK(TensorDesc(DType::f32, {2, 1}, Strides{1, 9}).is_contiguous());
  // Even where that of a contiguous tensor is beyond 64 bits.
  const std::uint64_t half = std::uint64_t{1} << 63;
  CHECK(TensorDesc(DType::u8, {1, 2}, Strides{5, half - 1}).strides() == Strides{(half - 1) * 2, half - 1});
}

TEST_CASE("A descriptor reads as type and shape and what is unusual", "[words][tensor]") {
  CHECK(to_string(TensorDesc(DType::f32, {32, 64})) == "f32[32,64]");
  CHECK(to_string(TensorDesc(DType::i64, {})) == "i64[]");
  CHECK(to_string(TensorDesc(DType::f32, {2, 3}, Strides{1, 2})) == "f32[2,3] strides [1,2]");
  CHECK(to_string(TensorDesc(DType::u8, {1, 2, 3, 4}, Layout::nchw)) == "u8[1,2,3,4] nchw");
}

// Accepted strides never let two elements share a place, and the extent is the place after the last.
TEST_CASE("Random strides agree with the places they give", "[words][tensor][R36]") {
  const std::uint64_t seed = 20240229;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Shape shape(1 + random() % 3);
    Strides strides(shape.size());
    for (auto& dimension : shape) dimension = 1 + random() % 4;
    for (auto& stride : strides) stride = 1 + random() % 16;

    std::vector<std::uint64_t> places{0};
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::vector<std::uint64_t> next;
      for (const std::uint64_t place : places) {
        for (std::uint64_t k = 0; k < shape[i]; ++k) next.push_back(place + k * strides[i]);
      }
      places = std::move(next);
    }
    const std::set<std::uint64_t> distinct(places.begin(), places.end());
    try {
      const TensorDesc desc(DType::f32, shape, strides);
      ++accepted;
      REQUIRE(distinct.size() == places.size());
      REQUIRE(desc.count() == places.size());
      REQUIRE(desc.bytes() == (*distinct.rbegin() + 1) * 4);
    } catch (const Error& error) {
      ++refused;
      REQUIRE(error.code() == ErrorCode::invalid);
    }
  }
  CHECK(accepted > 1000);
  CHECK(refused > 1000);
}

}  // namespace
