#include "support/model_state.h"

#include "graph_state.h"
#include "operation.h"
#include "overloaded.h"

#include <spdlog/fmt/fmt.h>

#include <iterator>
#include <variant>

namespace weft::test {
namespace {

std::string text_of(const MemoryCounters& counters) {
  return fmt::format("{} live, {} at most, {} allocations", counters.live_bytes, counters.peak_bytes,
                     counters.allocations);
}

std::string text_of(const Location& location) { return fmt::format("{}+{}", location.allocation, location.offset); }

std::string text_of(const Dim3& size) { return fmt::format("({},{},{})", size.x, size.y, size.z); }

std::string text_of(const DispatchOperation& dispatch) {
  std::string text = fmt::format("kernel {} {} {}", static_cast<const void*>(dispatch.kernel.get()),
                                 text_of(dispatch.grid), dispatch.dynamic_shared_bytes);
  for (const std::byte byte : dispatch.parameters) text += fmt::format(" {:02x}", static_cast<unsigned>(byte));
  for (const PointerSlot& pointer : dispatch.pointers)
    text += fmt::format(" {}->{}", pointer.block_offset, text_of(pointer.target));
  for (const LateScalarSlot& late : dispatch.late)
    text += fmt::format(" {}->late {}", late.block_offset, late.scalar->id.index);
  return text;
}

std::string text_of(const CapturedOperation& captured) {
  std::string text = fmt::format("call {}", captured.id);
  for (const Location& place : captured.bindings) text += ' ' + text_of(place);
  if (captured.workspace) text += " workspace " + text_of(*captured.workspace);
  return text;
}

std::string text_of(const Operation& operation) {
  std::string text = fmt::format("operation \"{}\" ", operation.label);
  text += std::visit(
      Overloaded{[](const FillOperation& fill) {
                   return fmt::format("fill {} {} {}", text_of(fill.destination), fill.bytes, fill.value);
                 },
                 [](const CopyOperation& copy) {
                   return fmt::format("copy {} {} {}", text_of(copy.destination), text_of(copy.source), copy.bytes);
                 },
                 [](const DispatchOperation& dispatch) { return text_of(dispatch); },
                 [](const CapturedOperation& captured) { return text_of(captured); }},
      operation.action);
  for (const ByteUse& use : operation.uses.uses)
    text += fmt::format(" {} {}[{},{})", to_string(use.access), use.allocation, use.begin, use.end);
  for (const std::uint32_t earlier : operation.uses.after) text += fmt::format(" after {}", earlier);
  return text;
}

std::string text_of(const Allocation& allocation) {
  return fmt::format("allocation \"{}\" {} {} weight {} memory {} users {} late {}", allocation.label, allocation.bytes,
                     to_string(allocation.placement), static_cast<const void*>(allocation.weight.get()),
                     static_cast<const void*>(allocation.memory.get()), allocation.users,
                     static_cast<const void*>(allocation.late.get()));
}

}  // namespace

ModelState&& ModelState::with(std::string_view name, std::uint64_t value) && {
  lines_.push_back(fmt::format("{} {}", name, value));
  return std::move(*this);
}

std::ostream& operator<<(std::ostream& out, const ModelState& state) {
  for (const std::string& line : state.lines_) out << line << '\n';
  return out;
}

void ModelState::add(const Context& context) {
  const MemoryStatistics memory = context.memory();
  lines_.push_back("requested " + text_of(memory.requested));
  lines_.push_back("reserved " + text_of(memory.reserved));
  lines_.push_back("staging " + text_of(memory.staging));
}

void ModelState::add(const Graph& graph) {
  const GraphState& state = GraphAccess::state(graph);
  lines_.push_back(fmt::format("graph {} \"{}\"", state.id, state.label));
  for (const Allocation& allocation : state.allocations) lines_.push_back(text_of(allocation));
  for (const Operation& operation : state.operations) lines_.push_back(text_of(operation));
  for (const std::uint32_t entry : state.scratch_pool) lines_.push_back(fmt::format("pooled {}", entry));
}

void ModelState::add(const PreparedModel& pool) {
  lines_.push_back(fmt::format("pool of {}, {}", pool.slots(), pool.is_idle() ? "idle" : "in use"));
}

}  // namespace weft::test
