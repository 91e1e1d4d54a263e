#include "catch.h"
#include <weft/region.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace {

using weft::Access;
using weft::DType;
using weft::Error;
using weft::ErrorCode;
using weft::Region;
using weft::TensorDesc;
using weft::TypedRegion;
using weft::test::refusal;

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

static_assert(std::is_trivially_copyable_v<Region>);
static_assert(std::is_convertible_v<TypedRegion<float>, Region>);
static_assert(!std::is_convertible_v<TypedRegion<float>, TypedRegion<std::int32_t>>);

TEST_CASE("A slice is relative to its region", "[words][region]") {
  const Region region{.session = 7, .allocation = 2, .offset = 256, .bytes = 64};
  CHECK(region.slice(0, 64) == region);
  CHECK(region.slice(16, 8) == Region{7, 2, 272, 8});
  CHECK(region.slice(16, 8).slice(4, 4) == Region{7, 2, 276, 4});
  CHECK(region.slice(64, 0) == Region{7, 2, 320, 0});
}

TEST_CASE("A slice that leaves its region is refused", "[words][region][T35]") {
  const Region region{.session = 7, .allocation = 2, .offset = 256, .bytes = 64};
  struct Row {
    std::uint64_t from;
    std::uint64_t size;
  };
  for (const Row row :
       {Row{0, 65}, Row{1, 64}, Row{64, 1}, Row{65, 0}, Row{kLargest, 0}, Row{1, kLargest}, Row{kLargest, kLargest}}) {
    INFO(row.from << " " << row.size);
    CHECK(refusal([&] { (void)region.slice(row.from, row.size); }).code() == ErrorCode::invalid);
  }
  CHECK(refusal([&] { (void)region.slice(60, 8); }).sentence() ==
        "The slice of 8 bytes at byte 60 leaves its region of 64 bytes.");
}

TEST_CASE("A slice beyond 64 bits of its allocation is refused", "[words][region]") {
  const Region forged{.session = 7, .allocation = 2, .offset = kLargest - 8, .bytes = 64};
  const Error error = refusal([&] { (void)forged.slice(16, 8); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The slice at byte 16 of a region at byte 18446744073709551607 is beyond 64 bits.");
}

TEST_CASE("A binding names its access only where the call does", "[words][region]") {
  const Region region{.session = 7, .allocation = 2, .offset = 0, .bytes = 64};
  CHECK(region.read().access == Access::read);
  CHECK(region.write().access == Access::write);
  CHECK(region.read_write().access == Access::read_write);
  CHECK(region.write().region == region);
}

TEST_CASE("A typed region refuses a tensor of another element type", "[words][region]") {
  const Region region{.session = 7, .allocation = 2, .offset = 0, .bytes = 64};
  const TypedRegion<float> typed(region, TensorDesc(DType::f32, {4, 4}));
  CHECK(static_cast<const Region&>(typed) == region);
  CHECK(typed.desc.bytes() == 64);
  const Error error = refusal([&] { TypedRegion<float>(region, TensorDesc(DType::u8, {4, 4})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The tensor u8[4,4] does not have the element type f32 of its region.");
}

}  // namespace
