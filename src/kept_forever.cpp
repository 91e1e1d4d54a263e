#include "kept_forever.h"

#include <atomic>
#include <utility>

namespace weft {

namespace {

struct Kept {
  std::shared_ptr<const void> owner;
  Kept* next;
};

constinit std::atomic<Kept*> kept{nullptr};  // Reachable, so that leak checkers see that it is meant.

}  // namespace

void keep_forever(std::shared_ptr<const void> owner) noexcept {
  auto* const node = new Kept{std::move(owner), kept.load(std::memory_order_relaxed)};
  while (!kept.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace weft
