#pragma once

#include "catch.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace weft::test {

/// Each of `works` again and again on a thread of its own, for so long. None may throw, and each is done at least once.
/// A work is given the number of its turn.
inline void work_beside_one_another(std::chrono::seconds span,
                                    const std::array<std::function<void(std::uint64_t turn)>, 3>& works) {
  std::atomic<bool> stops{false};
  std::vector<std::string> errors(works.size());
  std::vector<std::uint64_t> turns(works.size(), 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < works.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (; !stops; ++turns[i]) works[i](turns[i]);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  std::this_thread::sleep_for(span);
  stops = true;
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < works.size(); ++i) {
    INFO("thread " << i << ": " << errors[i]);
    CHECK(errors[i].empty());
    CHECK(turns[i] > 0);
  }
}

}  // namespace weft::test
