#include "catch.h"
#include <weft/contract.h>

namespace {

using weft::Access;
using weft::Parameter;
using weft::ParameterKind;
using weft::Placement;

static_assert(weft::reads(Access::read) && !weft::writes(Access::read));
static_assert(!weft::reads(Access::write) && weft::writes(Access::write));
static_assert(weft::reads(Access::read_write) && weft::writes(Access::read_write));

TEST_CASE("Access and placement and parameter kinds read as their names", "[words][contract]") {
  CHECK(to_string(Access::read) == "read");
  CHECK(to_string(Access::write) == "write");
  CHECK(to_string(Access::read_write) == "read_write");
  CHECK(to_string(Placement::device) == "device");
  CHECK(to_string(Placement::shared) == "shared");
  CHECK(to_string(ParameterKind::binding) == "binding");
  CHECK(to_string(ParameterKind::scalar) == "scalar");
  CHECK(to_string(ParameterKind::index) == "index");
  CHECK(to_string(ParameterKind::bytes) == "bytes");
}

TEST_CASE("A binding needs the alignment of its element unless it states another", "[words][contract]") {
  Parameter parameter{.kind = ParameterKind::binding, .size = 8, .element_size = 4};
  CHECK(parameter.required_alignment() == 4);
  parameter.alignment = 16;
  CHECK(parameter.required_alignment() == 16);
}

}  // namespace
