#include "catch.h"
#include "support/model_fixture.h"
#include <weft/cuda.h>
#include <weft/weft.h>

#include <cstdint>
#include <nccl.h>
#include <optional>
#include <stdexcept>
#include <variant>

namespace weft::test {
namespace {

constexpr std::uint64_t kElements = 5000;

void must(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetErrorString(result));
}

/// A communicator of one rank, which allocates when it is made.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (communicator_ != nullptr) static_cast<void>(ncclCommDestroy(communicator_));
  }
  void open() {
    const int device = 0;
    if (communicator_ == nullptr) must(ncclCommInitAll(&communicator_, 1, &device));
  }
  [[nodiscard]] ncclComm_t get() const noexcept { return communicator_; }

 private:
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

TEST_CASE("NCCL's all-reduce of one rank runs as a call", "[cuda][captured][nccl][cuda-only]") {
  const auto communicator = std::make_shared<Communicator>();
  TestSession test;
  const auto x = test.session.allocate<float>({kElements}, {.label = "x"});
  const auto y = test.session.allocate<float>({kElements}, {.label = "y"});
  Captured reduce{.name = "all-reduce", .bindings = {x.read(), y.write()}, .identity = {}};
  reduce.load = [communicator] { communicator->open(); };
  reduce.enqueue = [communicator](const CapturedCall& call) {
    must(ncclAllReduce(call.get<const void*>(0), call.get<void*>(1), kElements, ncclFloat, ncclSum, communicator->get(),
                       call.stream));
  };
  PreparedModel pool = test.freeze()
                           .fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {Command(reduce)}})
                           .prepare({.slots = 3});
  for (int round = 0; round < 9; ++round) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    for (std::uint64_t i = 0; i < kElements; ++i)
      slot->input<float>(0)[i] = static_cast<float>(i) + 0.5f * static_cast<float>(round);
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    for (std::uint64_t i = 0; i < kElements; ++i)
      REQUIRE(run.output<float>(0)[i] == static_cast<float>(i) + 0.5f * static_cast<float>(round));
  }
}

}  // namespace weft::test
