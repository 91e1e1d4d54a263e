#include "catch.h"
#include "kernels/float_elements.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/cublas.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 20260105;

struct Form {
  std::uint64_t rows;
  std::uint64_t in;
  std::uint64_t out;
  bool biased = false;
  bool allow_tf32 = false;
  std::uint64_t shift = 0;  ///< Elements that stand before each operand in its allocation.
  std::uint64_t workspace_bytes = std::uint64_t{4} << 20;
};

std::string describe(const Form& form) {
  return std::to_string(form.rows) + "x" + std::to_string(form.in) + "x" + std::to_string(form.out) +
         (form.biased ? " biased" : "") + (form.allow_tf32 ? " tf32" : "") + " shift " + std::to_string(form.shift);
}

/// The largest relative norm of an error. Sums of 1,536 terms in f32 in any order stay within, TF32 makes some 1e-4,
/// and sums in f16 or bf16 more than the types' own bounds.
template <class T>
double allowed(const Form& form) {
  if (!std::is_same_v<T, float>) return allowed_error<T>();
  return form.allow_tf32 ? 2e-3 : 5e-6;
}

/// A model of one linear layer with random weights.
template <class T>
class LinearModel {
 public:
  explicit LinearModel(const Form& form, const cublas::Library& library = {})
      : form_(form),
        w_(random_elements<T>(random_, form.out * form.in)),
        b_(random_elements<T>(random_, form.out)),
        context_(Context::open(test_device())),
        fragment_(make(library)) {}

  [[nodiscard]] PreparedModel prepare(std::uint32_t slots = 1) const { return fragment_.prepare({.slots = slots}); }

  /// The error of one request with fresh rows on a slot.
  [[nodiscard]] double error(ModelSlot slot, std::uint64_t seed) const {
    RandomFloats random(seed);
    const std::vector<T> x = random_elements<T>(random, form_.rows * form_.in);
    std::ranges::copy(x, slot.input<T>(0).begin());
    Inference run = std::move(slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    return relative_error<T>(run.output<T>(0), exact(x));
  }

  /// Of a request on the first slot that is free.
  [[nodiscard]] double error(PreparedModel model, std::uint64_t seed) const {
    std::optional<ModelSlot> slot = model.acquire(in_a_minute());
    REQUIRE(slot);
    return error(std::move(*slot), seed);
  }

 private:
  ModelFragment make(const cublas::Library& library) {
    ModelSession session(context_.device());
    const TensorRegion x = shifted(session.allocate(bytes_of(form_.rows * form_.in)), {form_.rows, form_.in});
    const TensorRegion y = shifted(session.allocate(bytes_of(form_.rows * form_.out)), {form_.rows, form_.out});
    const TensorRegion w = shifted(weight(session, w_), {form_.out, form_.in});
    const TensorRegion b = shifted(weight(session, b_), {form_.out});
    const cublas::LinearShape shape{.rows = form_.rows,
                                    .in = form_.in,
                                    .out = form_.out,
                                    .dtype = DTypeOf<T>::value,
                                    .allow_tf32 = form_.allow_tf32,
                                    .workspace_bytes = form_.workspace_bytes,
                                    .label = "fc"};
    const Command command =
        form_.biased ? cublas::linear(library, shape, x, w, b, y) : cublas::linear(library, shape, x, w, y);
    return std::move(session).freeze(context_).fragment(
        trusted, {.inputs = {x}, .outputs = {y}, .commands = {command}, .label = "linear"});
  }

  std::uint64_t bytes_of(std::uint64_t elements) const { return (elements + form_.shift) * sizeof(T); }

  TensorRegion shifted(const Region& region, Shape shape) const {
    const TensorDesc desc(DTypeOf<T>::value, std::move(shape));
    return {region.slice(form_.shift * sizeof(T), desc.bytes()), desc};
  }

  Region weight(ModelSession& session, const std::vector<T>& values) const {
    std::vector<T> padded(form_.shift);
    padded.insert(padded.end(), values.begin(), values.end());
    return session.weight({TensorDesc(DTypeOf<T>::value, {padded.size()}), std::as_bytes(std::span(padded)), "w"});
  }

  std::vector<double> exact(const std::vector<T>& x) const {
    std::vector<double> y;
    for (std::size_t row = 0; row < form_.rows; ++row) {
      for (std::size_t column = 0; column < form_.out; ++column) {
        double sum = form_.biased ? to_float(b_[column]) : 0.0;
        for (std::size_t i = 0; i < form_.in; ++i) {
          sum += static_cast<double>(to_float(x[row * form_.in + i])) * to_float(w_[column * form_.in + i]);
        }
        y.push_back(sum);
      }
    }
    return y;
  }

  Form form_;
  RandomFloats random_{kSeed};
  std::vector<T> w_;
  std::vector<T> b_;
  Context context_;
  ModelFragment fragment_;
};

void check_form(const Form& form) {
  INFO(describe(form) << " seed " << kSeed);
  for_each_float([&]<class T>() {
    const LinearModel<T> layer(form);
    const PreparedModel model = layer.prepare();
    // Twice, for what a run leaves behind must not matter to the next.
    CHECK(layer.error(model, 1) <= allowed<T>(form));
    CHECK(layer.error(model, 2) <= allowed<T>(form));
  });
}

/// The regions of a layer 4 -> 3 of two rows, all f32, in allocations of their own.
struct Regions {
  ModelSession session{test_device()};
  Region x = session.allocate(2 * 4 * 4);
  Region w = session.allocate(3 * 4 * 4);
  Region b = session.allocate(3 * 4);
  Region y = session.allocate(2 * 3 * 4);
  cublas::LinearShape shape{.rows = 2, .in = 4, .out = 3, .label = "fc"};
  cublas::Library library;

  Error refused() {
    return refusal([&] { static_cast<void>(cublas::linear(library, shape, x, w, b, y)); });
  }
};

const Captured& captured(const Command& command) { return std::get<Captured>(command.action()); }

}  // namespace

TEST_CASE("A linear layer of cuBLASLt is float64's within the rounding of its type", "[edges][cublas]") {
  for (const Form& form : {Form{1, 1, 1}, Form{33, 96, 200}, Form{8, 1536, 384}, Form{7, 5, 3}, Form{16, 384, 1152}}) {
    check_form(form);
  }
}

TEST_CASE("A linear layer of cuBLASLt adds its bias", "[edges][cublas]") {
  for (Form form : {Form{1, 1, 1}, Form{33, 96, 200}, Form{8, 1536, 384}, Form{7, 5, 3}}) {
    form.biased = true;
    check_form(form);
  }
}

TEST_CASE("A linear layer of cuBLASLt takes operands at any element", "[edges][cublas]") {
  for (const std::uint64_t shift : {1u, 2u, 4u})
    check_form({.rows = 8, .in = 64, .out = 40, .biased = true, .shift = shift});
}

TEST_CASE("A linear layer of cuBLASLt does without a workspace", "[edges][cublas]") {
  check_form({.rows = 8, .in = 1536, .out = 384, .workspace_bytes = 0});
}

TEST_CASE("A linear layer of cuBLASLt may use TF32 where that is allowed", "[edges][cublas]") {
  check_form({.rows = 64, .in = 512, .out = 256, .allow_tf32 = true});
}

TEST_CASE("The slots of a linear layer of cuBLASLt work apart", "[edges][cublas]") {
  const LinearModel<float> layer({.rows = 33, .in = 96, .out = 200, .biased = true});
  PreparedModel model = layer.prepare(2);
  std::optional<ModelSlot> first = model.acquire(in_a_minute());
  std::optional<ModelSlot> second = model.acquire(in_a_minute());
  REQUIRE(first);
  REQUIRE(second);
  CHECK(layer.error(std::move(*second), 3) <= 5e-6);
  CHECK(layer.error(std::move(*first), 4) <= 5e-6);
}

TEST_CASE("Two threads prepare a linear layer of cuBLASLt at a time", "[edges][cublas]") {
  const LinearModel<f16> layer({.rows = 16, .in = 384, .out = 1152});
  std::vector<std::optional<PreparedModel>> models(2);
  std::vector<std::thread> threads;
  for (auto& model : models) threads.emplace_back([&] { model = layer.prepare(2); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& model : models) CHECK(layer.error(model.value(), 5) <= allowed_error<f16>());
}

TEST_CASE("The workspace of a linear layer of cuBLASLt is scratch of the slot", "[edges][cublas]") {
  const PreparedModel model = LinearModel<float>({.rows = 8, .in = 64, .out = 40}).prepare();
  const std::vector<TopologyAllocation>& allocations = model.topology().allocations;
  const auto workspace =
      std::ranges::find_if(allocations, [](const TopologyAllocation& one) { return contains(one.label, "workspace"); });
  REQUIRE(workspace != allocations.end());
  CHECK(workspace->kind == AllocationKind::scratch);
  CHECK(workspace->bytes == std::uint64_t{4} << 20);
  CHECK(workspace->offset.has_value());
}

TEST_CASE("A linear layer of cuBLASLt reads its operands and writes its result", "[edges][cublas]") {
  Regions regions;
  const Command command = cublas::linear(regions.library, regions.shape, regions.x, regions.w, regions.b, regions.y);
  CHECK(command.label() == "fc");
  const std::vector<std::pair<Region, Access>> expected{
      {regions.x, Access::read}, {regions.w, Access::read}, {regions.b, Access::read}, {regions.y, Access::write}};
  REQUIRE(captured(command).bindings.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("binding " << i);
    CHECK(captured(command).bindings[i].region == expected[i].first);
    CHECK(captured(command).bindings[i].access == expected[i].second);
  }
  CHECK(captured(command).workspace_bytes == cublas::kWorkspaceBytes);
}

TEST_CASE("Linear layers of cuBLASLt have one identity exactly if they are the same work", "[edges][cublas]") {
  Regions regions;
  const auto identity = [&](const cublas::LinearShape& shape) {
    return captured(cublas::linear(regions.library, shape, regions.x, regions.w, regions.y)).identity;
  };
  cublas::LinearShape other = regions.shape;
  other.label = "another";
  CHECK(identity(other) == identity(regions.shape));
  other.allow_tf32 = true;
  CHECK(identity(other) != identity(regions.shape));
  other = regions.shape;
  other.workspace_bytes = 0;
  CHECK(identity(other) != identity(regions.shape));
  const Command biased = cublas::linear(regions.library, regions.shape, regions.x, regions.w, regions.b, regions.y);
  CHECK(captured(biased).identity != identity(regions.shape));
}

TEST_CASE("A linear layer of cuBLASLt refuses regions of another size", "[edges][cublas]") {
  Regions regions;
  SECTION("x") {
    regions.x = regions.x.slice(0, 28);
    CHECK(regions.refused().sentence() == "The linear layer \"fc\" takes x of 32 bytes, f32[2,4], and is given 28.");
  }
  SECTION("w") {
    regions.w = regions.x;
    CHECK(contains(regions.refused().sentence(), "takes w of 48 bytes, f32[3,4], and is given 32."));
  }
  SECTION("b") {
    regions.b = regions.b.slice(4, 8);
    CHECK(contains(regions.refused().sentence(), "takes b of 12 bytes, f32[3], and is given 8."));
  }
  SECTION("y") {
    regions.shape.label.clear();
    regions.y = regions.x;
    CHECK(regions.refused().sentence() == "The linear layer takes y of 24 bytes, f32[2,3], and is given 32.");
  }
  CHECK(regions.refused().code() == ErrorCode::invalid);
}

TEST_CASE("A linear layer of cuBLASLt refuses a shape that is none", "[edges][cublas]") {
  Regions regions;
  SECTION("no rows") {
    regions.shape.rows = 0;
    CHECK(regions.refused().sentence() == "The linear layer \"fc\" has 0 rows.");
  }
  SECTION("nothing to sum") {
    regions.shape.in = 0;
    CHECK(contains(regions.refused().sentence(), "has 0 in."));
  }
  SECTION("no results") {
    regions.shape.out = 0;
    CHECK(contains(regions.refused().sentence(), "has 0 out."));
  }
  SECTION("more than 64 bits") {
    regions.shape.rows = std::uint64_t{1} << 62;
    CHECK(contains(regions.refused().what(), "describing x of the linear layer \"fc\""));
  }
  SECTION("integers") {
    regions.shape.dtype = DType::i32;
    CHECK(regions.refused().sentence() == "The linear layer \"fc\" is of i32; cuBLASLt's are of f32, f16 and bf16.");
  }
  CHECK(regions.refused().code() == ErrorCode::invalid);
}

TEST_CASE("A linear layer of cuBLASLt refuses an operand within an element", "[edges][cublas]") {
  Regions regions;
  regions.b = regions.session.allocate(16).slice(2, 12);
  const Error error = regions.refused();
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "is given b at byte 2 of its allocation, which is within an element of f32."));
}

TEST_CASE("A linear layer of cuBLASLt refuses a result on top of an operand", "[edges][cublas]") {
  Regions regions;
  const Region both = regions.session.allocate(32 + 24);
  regions.x = both.slice(0, 32);
  regions.y = both.slice(28, 24);
  const Error error = regions.refused();
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The linear layer \"fc\" is given y on top of x, which it reads.");
  regions.y = both.slice(32, 24);
  CHECK_NOTHROW(cublas::linear(regions.library, regions.shape, regions.x, regions.w, regions.b, regions.y));
}

}  // namespace weft::test
