#include "support/deadlines.h"

#include <chrono>
#include <thread>

namespace weft::test {

Deadline in_a_minute() { return std::chrono::steady_clock::now() + std::chrono::minutes(1); }
Deadline past() { return std::chrono::steady_clock::now() - std::chrono::seconds(1); }

bool eventually(const std::function<bool()>& holds) {
  const Deadline end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace weft::test
