#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

// Dynamic shared memory beyond the default needs an opt-in, which is one value for all users of a kernel.

namespace weft::test {

namespace {

constexpr std::uint32_t kStaticBytes = 16;

/// One model whose fragments run `shared_words` with different amounts.
class SharedWords {
 public:
  SharedWords()
      : y_(test_.session.allocate<std::uint32_t>({1}, {.label = "y"})), kernel_(test_.session.load(shared_words)) {
    model_.emplace(test_.freeze());
  }

  [[nodiscard]] ModelFragment fragment(std::uint64_t bytes) const {
    return model_->fragment(trusted, {.outputs = {y_}, .commands = {kernel_(workload(bytes), y_, words(bytes))}});
  }
  /// What a fragment must compute.
  [[nodiscard]] static std::uint32_t expected(std::uint64_t bytes) { return bytes < 4 ? 10 : words(bytes) + 11; }
  [[nodiscard]] std::uint32_t run(const ModelFragment& fragment) const {
    PreparedModel prepared = fragment.prepare();
    Inference run = submit(prepared, {});
    if (!run.wait(in_a_minute())) return std::numeric_limits<std::uint32_t>::max();
    return run.output(y_)[0];
  }

 private:
  static std::uint32_t words(std::uint64_t bytes) { return static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t)); }

  TestSession test_;
  TypedRegion<std::uint32_t> y_;
  Kernel<Out<std::uint32_t>, std::uint32_t> kernel_;
  std::optional<ModelDefinition> model_;
};

}  // namespace

TEST_CASE("Dynamic shared memory up to the opt-in limit runs without the caller's doing", "[model][case22]") {
  const std::uint32_t most = open_device(test_device())->limits().max_shared_bytes;
  const SharedWords model;
  for (const std::uint32_t bytes : {0u, 49136u, 49152u, 49153u, most - kStaticBytes}) {
    INFO(bytes << " bytes beside " << kStaticBytes << " static ones");
    CHECK(model.run(model.fragment(bytes)) == SharedWords::expected(bytes));
  }
}

TEST_CASE("Dynamic shared memory that passes the opt-in limit by its static part is refused", "[model][case22]") {
  const std::uint32_t most = open_device(test_device())->limits().max_shared_bytes;
  const SharedWords model;
  for (const std::uint32_t bytes : {most - kStaticBytes + 1, most}) {
    const Error error = refusal([&] { static_cast<void>(model.fragment(bytes)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The launch needs " + std::to_string(bytes) +
                                  " bytes of dynamic shared memory beside 16 static ones; the device allows " +
                                  std::to_string(most) + " together.");
  }
  CHECK(model.run(model.fragment(most - kStaticBytes)) == SharedWords::expected(most - kStaticBytes));
}

TEST_CASE("Threads that raise the shared memory of one kernel do not disturb each other", "[model][case23]") {
  constexpr int kRounds = 1000;
  constexpr std::uint64_t kSmall = 8 << 10;
  constexpr std::uint64_t kLarge = 160 << 10;
  const SharedWords model;
  std::atomic<int> wrong{0};
  std::atomic<int> thrown{0};
  std::atomic<bool> done{false};
  const auto use = [&](std::uint64_t bytes) {
    try {
      // A fragment each round: its launch is checked and raised anew.
      if (model.run(model.fragment(bytes)) != SharedWords::expected(bytes)) ++wrong;
    } catch (const Error&) {
      ++thrown;
    }
  };
  std::thread churning([&] {
    for (std::uint64_t round = 0; !done; ++round) use(round % 2 == 0 ? kSmall : kLarge);
  });
  std::thread small([&] {
    for (int round = 0; round < kRounds; ++round) use(kSmall);
  });
  for (int round = 0; round < kRounds; ++round) use(kLarge);
  small.join();
  done = true;
  churning.join();
  CHECK(wrong == 0);
  CHECK(thrown == 0);
}

}  // namespace weft::test
