#include "catch.h"
#include "device/device_api.h"

#include <string>
#include <utility>

namespace weft::test {

TEST_CASE("Each status of a device has its error code", "[device]") {
  const std::pair<StatusCode, ErrorCode> table[] = {
      {StatusCode::not_ready, ErrorCode::busy},
      {StatusCode::invalid, ErrorCode::internal},
      {StatusCode::out_of_memory, ErrorCode::out_of_memory},
      {StatusCode::unsupported, ErrorCode::unsupported},
      {StatusCode::device_lost, ErrorCode::device_lost},
      {StatusCode::internal, ErrorCode::internal},
  };
  for (const auto& [status, code] : table) {
    INFO("status " << static_cast<int>(status));
    CHECK(refusal([&, given = status] { check({given, 0, "a rule"}, "launch"); }).code() == code);
  }
  CHECK_NOTHROW(check({}, "launch"));
}

TEST_CASE("A refused verb names the action and the driver call and its code", "[device]") {
  const Error error = refusal([] { check({StatusCode::out_of_memory, 2, "cuMemAllocAsync"}, "allocate 64 bytes"); });
  CHECK(error.sentence() == "The device cannot allocate 64 bytes: it is out of memory (cuMemAllocAsync, code 2).");
  CHECK(contains(error.where().file_name(), "status_test.cpp"));
  CHECK(refusal([] {
          check({StatusCode::internal, 0, ""}, "launch");
        }).sentence() == "The device cannot launch: a rule of its use is broken.");
}

}  // namespace weft::test
