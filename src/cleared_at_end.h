#pragma once

namespace weft {

/// Clears a container when it goes, whatever ends the scope. The container keeps its room.
template <class Container>
struct ClearedAtEnd {
  explicit ClearedAtEnd(Container& cleared) noexcept : container(cleared) {}
  ClearedAtEnd(const ClearedAtEnd&) = delete;
  ClearedAtEnd& operator=(const ClearedAtEnd&) = delete;
  ~ClearedAtEnd() { container.clear(); }

  Container& container;
};

}  // namespace weft
