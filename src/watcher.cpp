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
  Watches added;  // Guarded by mutex, as the next three.
  bool is_woken = false;
  bool is_ending = false;
  std::thread thread;  // Joined or let go of by whoever takes it from here.
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
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
    thread = std::move(state_->thread);
  }
  state_->changed.notify_one();
  if (!thread.joinable()) return;  // It has seen the process end.
  // It ends alone where it is this thread itself, and where the process ends: it may be in a callback that called exit.
  if (thread.get_id() == std::this_thread::get_id() || process_state() == ProcessState::exiting) {
    thread.detach();
  } else {
    thread.join();
  }
}

void Watcher::add(std::unique_ptr<Watch> watch) {
  check(process_status(), "watch work");
  Watches node;  // Destroyed, where it is refused, after the lock is gone: a watch keeps what is the caller's.
  node.push_back(std::move(watch));
  const auto state = state_;  // The watch may be over, and with it the context and this object, once the lock is gone.
  const std::lock_guard lock(state->mutex);
  if (!state->is_started.load()) {
    try {
      state->thread = std::thread(&Watcher::run, state);
    } catch (const std::system_error& error) {
      throw Error(ErrorCode::out_of_memory, fmt::format("No thread can be started to watch work: {}", error.what()));
    }
    state->is_started.store(true);
  }
  state->added.splice(state->added.end(), node);
  state->changed.notify_one();
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

bool Watcher::look(State& state, Watches& watches, bool ask) noexcept {
  const auto is_over = [&](Watch& watch) {
    try {
      return watch.look(ask);
    } catch (const std::exception& error) {
      state.caught.fetch_add(1, std::memory_order_relaxed);
      log(LogLevel::error, "watcher", [&] { return fmt::format("A callback threw: {}", error.what()); });
    } catch (...) {
      state.caught.fetch_add(1, std::memory_order_relaxed);
      log(LogLevel::error, "watcher", [] { return std::string("A callback threw what is no std::exception."); });
    }
    return true;
  };
  return std::erase_if(watches, [&](const std::unique_ptr<Watch>& watch) { return is_over(*watch); }) > 0;
}

void Watcher::run(const std::shared_ptr<State>& state) {
  Watches watches;
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
      watches.splice(watches.end(), state->added);
    }
    if (process_state() != ProcessState::running) {
      // What the watches keep cannot be let go any more: drivers and other threads' data are being taken down.
      keep_forever(std::make_shared<Watches>(std::move(watches)));
      const std::lock_guard lock(state->mutex);
      if (state->thread.joinable()) state->thread.detach();  // Who would join it is among what is kept.
      return;
    }
    // By the clock: where there is always news, the pause never gets long.
    const auto now = std::chrono::steady_clock::now();
    const bool ask = now >= ask_at;
    if (ask) ask_at = now + kBetweenQuestions;
    const bool is_busy = look(*state, watches, ask);
    pause = is_busy ? kShortestPause : std::min(kLongestPause, pause + pause / 2 + std::chrono::microseconds(1));
  }
}

}  // namespace weft
