#include "watcher.h"

#include "catch.h"
#include "runtime/memory_work.h"
#include "support/call_count.h"
#include "support/deadlines.h"
#include <weft/completion_source.h>
#include <weft/weft.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <pthread.h>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

class CountedWatch final : public Watch {
 public:
  CountedWatch(std::atomic<int>& looks, std::atomic<bool>& is_over, std::atomic<int>& gone)
      : looks_(looks), is_over_(is_over), gone_(gone) {}
  ~CountedWatch() override { ++gone_; }
  bool look(bool) override {
    ++looks_;
    return is_over_;
  }

 private:
  std::atomic<int>& looks_;
  std::atomic<bool>& is_over_;
  std::atomic<int>& gone_;
};

/// Has news for its watcher at every look, until it is told to ask or to give up.
class RestlessWatch final : public Watch {
 public:
  RestlessWatch(Watcher& watcher, std::atomic<bool>& asked, std::atomic<bool>& gives_up)
      : watcher_(watcher), asked_(asked), gives_up_(gives_up) {}
  bool look(bool ask) override {
    if (ask) asked_ = true;
    watcher_.wake();
    return ask || gives_up_;
  }

 private:
  Watcher& watcher_;
  std::atomic<bool>& asked_;
  std::atomic<bool>& gives_up_;
};

/// Keeps what it watches for, which asks for another watch as it goes: a watcher that still had its lock would wait for
/// ever.
class AddingWatch final : public Watch {
 public:
  AddingWatch(Watcher& watcher, std::atomic<int>& looks, std::atomic<int>& gone)
      : watcher_(watcher), looks_(looks), gone_(gone) {}
  ~AddingWatch() override {
    ++gone_;
    try {
      watcher_.add(nullptr);
    } catch (const Error&) {
    }
  }
  bool look(bool) override {
    ++looks_;
    return true;
  }

 private:
  Watcher& watcher_;
  std::atomic<int>& looks_;
  std::atomic<int>& gone_;
};

/// No thread can be started while it lives: its stack would be larger than all memory.
class WithoutThreads {
 public:
  WithoutThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &stack_bytes_);
    set(std::size_t{1} << 50);
  }
  WithoutThreads(const WithoutThreads&) = delete;
  WithoutThreads& operator=(const WithoutThreads&) = delete;
  ~WithoutThreads() { set(stack_bytes_); }

 private:
  static void set(std::size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_setattr_default_np(&attributes);
  }
  std::size_t stack_bytes_ = 0;
};

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("A watch is looked at until it is over and then destroyed", "[runtime][watcher]") {
  std::atomic<int> looks{0};
  std::atomic<bool> is_over{false};
  std::atomic<int> gone{0};
  Watcher watcher;
  watcher.wake();  // Without a thread this does nothing.
  watcher.add(std::make_unique<CountedWatch>(looks, is_over, gone));
  CHECK(eventually([&] { return looks > 3; }));
  CHECK(gone == 0);
  is_over = true;
  watcher.wake();
  CHECK(eventually([&] { return gone == 1; }));
}

TEST_CASE("A watch is told to ask however busy the watcher is", "[runtime][watcher]") {
  std::atomic<bool> asked{false};
  std::atomic<bool> gives_up{false};
  Watcher watcher;
  watcher.add(std::make_unique<RestlessWatch>(watcher, asked, gives_up));
  CHECK(eventually([&] { return asked.load(); }));
  gives_up = true;
}

TEST_CASE("A watch that is refused is destroyed once and never looked at", "[runtime][watcher][R15]") {
  std::atomic<int> looks{0};
  std::atomic<int> gone{0};
  std::atomic<bool> is_over{true};
  Watcher watcher;
  int refused = 0;
  SECTION("No thread can be started") {
    const WithoutThreads without_threads;
    const Error error = refusal([&] { watcher.add(std::make_unique<AddingWatch>(watcher, looks, gone)); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(contains(error.what(), "No thread can be started to watch work: "));
    refused = 1;
  }
  SECTION("There is no memory for it") {
    for (std::uint64_t n = 1;; ++n) {
      INFO("allocation " << n);
      auto watch = std::make_unique<CountedWatch>(looks, is_over, gone);
      bool is_refused = false;
      call_count.failing_new = n;
      try {
        watcher.add(std::move(watch));
      } catch (const std::bad_alloc&) {
        is_refused = true;
      }
      call_count.failing_new = 0;
      if (!is_refused) break;
      ++refused;
      CHECK(gone == refused);
    }
    CHECK(refused > 0);
    CHECK(eventually([&] { return gone == refused + 1; }));
    CHECK(looks == 1);
    looks = 0;
    gone = refused;
  }
  CHECK(gone == refused);
  CHECK(looks == 0);
  watcher.add(std::make_unique<CountedWatch>(looks, is_over, gone));
  CHECK(eventually([&] { return gone == refused + 1; }));
  CHECK(looks == 1);
}

TEST_CASE("Only callbacks and what waits for the host start a thread and it is one a context",
          "[runtime][watcher][R15][host-only]") {
  const Context context = open_context();
  const DeviceTensor source = upload(context, {1, 2, 3});
  const DeviceTensor copy = source.copy_into(context.tensor(bytes_desc(3)));
  CHECK(values(copy) == std::vector<std::uint8_t>{1, 2, 3});
  const std::ptrdiff_t before = threads_of_process();
  std::vector<CompletionSource> sources;
  std::atomic<int> calls{0};
  for (int i = 0; i < 10; ++i) sources.emplace_back(context, "s");
  CHECK(threads_of_process() == before);
  for (const CompletionSource& each : sources) each.completion().then([&] { ++calls; });
  CHECK(threads_of_process() == before + 1);
  for (CompletionSource& each : sources) CHECK(each.complete());
  CHECK(eventually([&] { return calls == 10; }));
  CHECK(threads_of_process() == before + 1);
}

}  // namespace weft::test
