#include "fragment_state.h"
#include "overloaded.h"
#include <weft/plan_key.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft {

namespace {

/// The value of a part, written number by number.
class Value {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) Value& put(T value) {
    const auto number = static_cast<std::uint64_t>(value);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  template <class Numbers>
  Value& put_all(const Numbers& numbers) {
    put(numbers.size());
    for (const auto number : numbers) put(number);
    return *this;
  }
  Value& put(const Location& place) { return put(place.allocation).put(place.offset); }
  Value& put(const Dim3& extent) { return put(extent.x).put(extent.y).put(extent.z); }
  Value& put(const TensorRegion& tensor) {
    const TensorDesc& desc = tensor.desc;
    put(tensor.allocation).put(tensor.offset).put(tensor.bytes).put(desc.dtype()).put(desc.layout());
    return put_all(desc.shape()).put_all(desc.strides());
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

void add(PlanKey& key, std::string_view part, const Value& value) { key.add(part, value.bytes()); }

void add_action(PlanKey& key, const std::string& command, const FillOperation& fill) {
  add(key, command + " fill", Value().put(fill.destination).put(fill.bytes).put(fill.value));
}

void add_action(PlanKey& key, const std::string& command, const CopyOperation& copy) {
  add(key, command + " copy", Value().put(copy.destination).put(copy.source).put(copy.bytes));
}

void add_action(PlanKey& key, const std::string& command, const DispatchOperation& dispatch) {
  add(key, command + " kernel", Value().put(dispatch.kernel->id));
  add(key, command + " grid", Value().put(dispatch.grid));
  add(key, command + " shared memory", Value().put(dispatch.dynamic_shared_bytes));
  Value scalars;
  scalars.put_all(dispatch.parameters);
  for (const LateScalarSlot& late : dispatch.late) scalars.put(late.block_offset).put(late.scalar->id.index);
  add(key, command + " scalars", scalars);
  Value pointers;
  for (const PointerSlot& pointer : dispatch.pointers) pointers.put(pointer.block_offset).put(pointer.target);
  add(key, command + " pointers", pointers);
}

void add_action(PlanKey& key, const std::string& command, const CapturedOperation& captured) {
  const Captured& call = *captured.call;
  key.add(command + " call", call.name);
  key.add(command + " identity", call.identity);
  if (call.identity.empty()) add(key, command + " call's id", Value().put(captured.id));
  Value places;
  for (const Location& place : captured.bindings) places.put(place);
  add(key, command + " bindings", places);
  add(key, command + " workspace", Value().put(call.workspace_bytes));
}

void add_operation(PlanKey& key, std::size_t index, const Operation& operation) {
  const std::string command = fmt::format("commands[{}]", index);
  std::visit([&](const auto& action) { add_action(key, command, action); }, operation.action);
  Value regions;
  for (const ByteUse& use : operation.uses.uses)
    regions.put(use.allocation).put(use.begin).put(use.end).put(use.access);
  add(key, command + " regions", regions);
  add(key, command + " order", Value().put_all(operation.uses.after));
}

void add_tensors(PlanKey& key, const char* what, const std::vector<TensorRegion>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) add(key, fmt::format("{}[{}]", what, i), Value().put(tensors[i]));
}

// All members by name, so that this does not compile when there is one more.
void add_fragment(PlanKey& key, const FragmentState& fragment) {
  const auto& [context, label, allocations, extents, operations, inputs, outputs, reuses_scratch, session] = fragment;
  static_cast<void>(context);      // The definition's.
  static_cast<void>(label);        // For messages.
  static_cast<void>(allocations);  // The definition's, too.
  static_cast<void>(extents);      // Follow from commands, inputs and outputs.
  key.add("definition", session);
  key.add("commands", operations.size());
  key.add("reused scratch", std::uint64_t{reuses_scratch});
  for (std::size_t i = 0; i < operations.size(); ++i) add_operation(key, i, operations[i]);
  add_tensors(key, "inputs", inputs);
  add_tensors(key, "outputs", outputs);
}

void add_options(PlanKey& key, const PrepareOptions& options) {
  const auto& [slots, forms, copies, order, programmatic, spin, hang_after, separate_allocations] = options;
  key.add("slots", slots);
  Value listed;
  for (const RequestForm& form : forms) listed.put(form.inputs).put(form.outputs);
  add(key, "forms", listed);
  add(key, "copies", Value().put(copies));
  add(key, "order", Value().put(order));
  add(key, "programmatic", Value().put(programmatic));
  add(key, "spin", Value().put(spin.count()));
  add(key, "hang_after", Value().put(hang_after.has_value()).put(hang_after ? hang_after->count() : 0));
  add(key, "separate_allocations", Value().put(separate_allocations));
}

/// Reads a key's parts one after the other.
class Parts {
 public:
  explicit Parts(std::string_view content) noexcept : rest_(content) {}

  [[nodiscard]] bool is_at_end() const noexcept { return rest_.empty(); }
  /// Name and value of the next part, and its bytes as a whole.
  struct Part {
    std::string_view name;
    std::string_view all;
  };
  Part next() noexcept {
    std::uint64_t name = 0;
    std::uint64_t value = 0;
    std::memcpy(&name, rest_.data(), sizeof(name));
    std::memcpy(&value, rest_.data() + sizeof(name), sizeof(value));
    constexpr std::size_t kHead = sizeof(name) + sizeof(value);
    const Part part{rest_.substr(kHead, name), rest_.substr(0, kHead + name + value)};
    rest_.remove_prefix(part.all.size());
    return part;
  }

 private:
  std::string_view rest_;
};

}  // namespace

PlanKey PlanKey::of(const ModelFragment& fragment, const PrepareOptions& options) {
  PlanKey key;
  const FragmentState& state = FragmentAccess::state(fragment);
  key.set_label(state.label);
  add_fragment(key, state);
  add_options(key, options);
  return key;
}

PlanKey& PlanKey::add(std::string_view part, std::string_view value) & {
  const std::uint64_t lengths[] = {part.size(), value.size()};
  content_.append(reinterpret_cast<const char*>(lengths), sizeof(lengths));
  content_.append(part).append(value);
  return *this;
}

PlanKey& PlanKey::add(std::string_view part, std::uint64_t value) & {
  return add(part, std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}

PlanKey& PlanKey::set_label(std::string label) & {
  label_ = std::move(label);
  return *this;
}

PlanKey::Likeness PlanKey::compare(const PlanKey& other) const {
  Likeness likeness;
  Parts mine(content_);
  Parts others(other.content_);
  bool differs = false;
  while (!mine.is_at_end() || !others.is_at_end()) {
    const Parts::Part a = mine.is_at_end() ? Parts::Part{} : mine.next();
    const Parts::Part b = others.is_at_end() ? Parts::Part{} : others.next();
    if (a.all == b.all) {
      ++likeness.equal_parts;
    } else if (!std::exchange(differs, true)) {
      likeness.first_difference = a.all.empty() ? b.name : a.name;
    }
  }
  return likeness;
}

}  // namespace weft
