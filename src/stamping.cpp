#include "stamping.h"

#include "error_context.h"
#include "graph_builder.h"
#include "slot_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>

namespace weft {

namespace {

// Seen on an H200: instantiating on two threads is 2.2 times faster than on one, on four 2.6; more do not help.
constexpr std::size_t kMostThreads = 4;
// Below so many nodes a thread, starting it costs more than it saves.
constexpr std::size_t kNodesPerThread = 1000;

/// The templates of one thread, one a request form. A slot with calls has graphs of its own: how many nodes a call has,
/// and of which kernels, may depend on its addresses.
class Stamp {
 public:
  explicit Stamp(std::shared_ptr<DeviceApi> api) : api_(std::move(api)) {}

  void make(Slot& slot) {
    const SlotPlan& plan = slot.plan();
    templates_.resize(plan.forms.size());
    for (std::size_t form = 0; form < plan.forms.size(); ++form) {
      const GraphPlan& graph = plan.forms[form].graph;
      std::shared_ptr<GraphTemplate>& stamp = templates_.at(form);
      if (stamp == nullptr || !slot.calls().empty()) {
        stamp = std::make_shared<GraphTemplate>(api_, graph, slot.addresses(), slot.calls());
      } else {
        stamp->point_at(graph, slot.addresses());
      }
      slot.add_executable(stamp->instantiate(), stamp);
    }
  }

 private:
  std::shared_ptr<DeviceApi> api_;
  std::vector<std::shared_ptr<GraphTemplate>> templates_;
};

/// Makes the slots with these indices, in order.
void make_share(const std::shared_ptr<DeviceApi>& api, std::span<const std::unique_ptr<Slot>> slots,
                std::span<const std::uint32_t> indices) {
  Stamp stamp(api);
  for (const std::uint32_t index : indices) {
    in_context([&] { return fmt::format("preparing slot {} of {}", index, slots.size()); },
               [&] { stamp.make(*slots[index]); });
  }
}

std::size_t count_threads(const SlotPlan& plan, std::size_t slots) {
  std::size_t nodes = 0;
  for (const FormPlan& form : plan.forms) nodes += form.graph.operations.size();
  const std::size_t worthwhile = std::max<std::size_t>(1, nodes * slots / kNodesPerThread);
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::min({kMostThreads, cores, slots, worthwhile});
}

/// Runs `work(thread)` on each of `count` threads, the caller's among them, and rethrows the first error by thread.
template <class Work>
void run_on_threads(std::size_t count, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  const auto run = [&](std::size_t thread) {
    try {
      work(thread);
    } catch (...) {
      errors[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(count - 1);
    for (std::size_t thread = 1; thread < count; ++thread) threads.emplace_back(run, thread);
    run(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

std::vector<std::uint32_t> make_executables(const std::shared_ptr<DeviceApi>& api,
                                            std::span<const std::unique_ptr<Slot>> slots) {
  const SlotPlan& first = slots.front()->plan();
  std::vector<std::uint32_t> alike;
  std::vector<std::uint32_t> odd;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const SlotPlan& plan = slots[i]->plan();
    (&plan == &first || same_shape(plan, first) ? alike : odd).push_back(i);
  }
  const std::size_t threads = count_threads(first, alike.size());
  run_on_threads(threads, [&](std::size_t thread) {
    const std::size_t begin = alike.size() * thread / threads;
    const std::size_t end = alike.size() * (thread + 1) / threads;
    make_share(api, slots, std::span(alike).subspan(begin, end - begin));
  });
  for (const std::uint32_t index : odd) make_share(api, slots, std::span(&index, 1));
  return odd;
}

}  // namespace weft
