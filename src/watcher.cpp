#include "watcher.h"

#include "device/device_api.h"
#include "device/process_state.h"
#include "kept_forever.h"
#include "logging.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace weft {

namespace {

// Between looks: short while things happen, so that callbacks are prompt, and longer the longer nothing does.
constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPause{500};
constexpr std::chrono::milliseconds kBetweenQuestions{10};

}  // namespace

struct Watcher::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Watch>> added;  // Guarded by mutex, as the next three.
  bool is_woken = false;
  bool is_ending = false;
  std::thread thread;
  std::atomic<bool> is_started{false};
  std::atomic<std::uint64_t> caught{0};
};

Watcher::Watcher() : state_(std::make_shared<State>()) {}

Watcher::~Watcher() {
  if (!state_->is_started.load()) return;
  // A child of fork has no such thread, and its lock may be held by one that is gone: the state is left as it is.
  if (process_state() == ProcessState::forked) {
    keep_forever(std::move(state_));
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
  }
  state_->changed.notify_one();
  // It ends alone where it is this thread itself, and where the process ends: it may be in a callback that called exit.
  if (state_->thread.get_id() == std::this_thread::get_id() || process_state() == ProcessState::exiting) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

void Watcher::add(std::unique_ptr<Watch> watch) {
  check(process_status(), "watch work");
  const std::lock_guard lock(state_->mutex);
  state_->added.push_back(std::move(watch));
  if (!state_->is_started.load()) {
    try {
      state_->thread = std::thread(&Watcher::run, state_);
    } catch (const std::system_error& error) {
      state_->added.pop_back();
      throw Error(ErrorCode::out_of_memory, fmt::format("No thread can be started to watch work: {}", error.what()));
    }
    state_->is_started.store(true);
  }
  state_->changed.notify_one();
}

void Watcher::wake() noexcept {
  if (!state_->is_started.load() || process_state() != ProcessState::running) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_woken = true;
  }
  state_->changed.notify_one();
}

std::uint64_t Watcher::caught() const noexcept { return state_->caught.load(std::memory_order_relaxed); }

void Watcher::run(const std::shared_ptr<State>& state) {
  std::vector<std::unique_ptr<Watch>> watches;
  std::chrono::microseconds pause = kShortestPause;
  auto ask_at = std::chrono::steady_clock::now() + kBetweenQuestions;
  for (;;) {
    {
      std::unique_lock lock(state->mutex);
      const auto has_news = [&] { return state->is_ending || state->is_woken || !state->added.empty(); };
      if (watches.empty()) {
        state->changed.wait(lock, has_news);
      } else {
        state->changed.wait_for(lock, pause, has_news);
      }
      if (state->is_ending && watches.empty() && state->added.empty()) return;
      if (state->is_woken || !state->added.empty()) pause = kShortestPause;
      state->is_woken = false;
      std::ranges::move(state->added, std::back_inserter(watches));
      state->added.clear();
    }
    if (process_state() != ProcessState::running) {
      // What the watches keep cannot be let go any more: drivers and other threads' data are being taken down.
      keep_forever(std::make_shared<std::vector<std::unique_ptr<Watch>>>(std::move(watches)));
      return;
    }
    // By the clock: where there is always news, the pause never gets long.
    const auto now = std::chrono::steady_clock::now();
    const bool ask = now >= ask_at;
    if (ask) ask_at = now + kBetweenQuestions;
    const auto ended = std::erase_if(watches, [&](const std::unique_ptr<Watch>& watch) {
      try {
        return watch->look(ask);
      } catch (const std::exception& error) {
        state->caught.fetch_add(1, std::memory_order_relaxed);
        log(LogLevel::error, "watcher", [&] { return fmt::format("A callback threw: {}", error.what()); });
        return true;
      } catch (...) {
        state->caught.fetch_add(1, std::memory_order_relaxed);
        log(LogLevel::error, "watcher", [] { return std::string("A callback threw what is no std::exception."); });
        return true;
      }
    });
    pause = ended > 0 ? kShortestPause : std::min(kLongestPause, pause + pause / 2 + std::chrono::microseconds(1));
  }
}

}  // namespace weft
