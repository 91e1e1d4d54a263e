#include "line.h"

#include <weft/error.h>
#include <weft/kernels.h>
#include <weft/session.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

namespace weft::bench {

ModelFragment make_line(const Context& context, std::uint32_t nodes) {
  if (nodes == 0) throw Error(ErrorCode::invalid, "The line has 0 nodes; it has at least 1.");
  ModelSession session(context.device());
  const auto scale = session.load(kernels::scale);
  const auto buffer = [&](const char* label) { return session.allocate<float>({kLineFloats}, {.label = label}); };
  const auto input = buffer("input");
  const std::array buffers{buffer("even"), buffer("odd")};
  const ModelDefinition definition = std::move(session).freeze(context);

  std::vector<Command> commands;
  const TypedRegion<float>* from = &input;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const TypedRegion<float>& to = buffers[node % 2];
    commands.push_back(scale(workload(kLineFloats), *from, to, line_factor(node), std::uint64_t{kLineFloats}));
    from = &to;
  }
  return definition.fragment(trusted,
                             {.inputs = {input}, .outputs = {*from}, .commands = std::move(commands), .label = "line"});
}

Exchange line_exchange(std::uint32_t nodes) {
  Exchange exchange(kLineFloats, kLineFloats, 0);
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float factor = 1;
  for (std::uint32_t node = 0; node < nodes; ++node) factor *= line_factor(node);
  std::vector<float> input(kLineFloats);
  std::vector<float> answer(kLineFloats);
  for (std::size_t i = 0; i < kRotation; ++i) {
    std::ranges::generate(input, [&] { return uniform(generator); });
    std::ranges::transform(input, answer.begin(), [factor](float value) { return value * factor; });
    exchange.add(input, answer);
  }
  return exchange;
}

}  // namespace weft::bench
