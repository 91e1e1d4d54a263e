#pragma once

#include "catch.h"
#include <weft/weft.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

/// What a refusal must leave as it was, written out line by line, so that two states compare as a whole and print: a
/// context's statistics, all of an unprepared graph, the slots of a pool, and numbers that a test adds.
///
/// `ModelState(context, graph, pool).with("launches", counting->count(Verb::launch))`.
class ModelState {
 public:
  template <class... Parts>
  explicit ModelState(const Parts&... parts) {
    (add(parts), ...);
  }
  [[nodiscard]] ModelState&& with(std::string_view name, std::uint64_t value) &&;

  friend bool operator==(const ModelState&, const ModelState&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ModelState& state);

 private:
  void add(const Context& context);
  void add(const Graph& graph);
  void add(const PreparedModel& pool);

  std::vector<std::string> lines_;
};

/// The error that `call` throws; checks that the state is the same before and after.
template <class StateOf, class Call>
[[nodiscard]] Error check_refusal_changes_nothing(const StateOf& state_of, Call&& call) {
  const ModelState before = state_of();
  Error error = refusal(std::forward<Call>(call));
  CHECK(state_of() == before);
  return error;
}

}  // namespace weft::test
