#include "catch.h"
#include "logging.h"
#include "support/deadlines.h"
#include <weft/error.h>
#include <weft/log.h>
#include <weft/spdlog.h>

#include <spdlog/sinks/ostream_sink.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr LogLevel kAnyLevel = LogLevel::warning;

void say(std::string sentence) {
  log(kAnyLevel, "object", [&] { return sentence; });
}

/// Takes back the sink of a test.
struct Silence {
  ~Silence() { set_log_sink({}); }
};

/// What a sink was told.
struct Heard {
  [[nodiscard]] LogSink sink() {
    return [this](const LogRecord& record) {
      const std::lock_guard lock(mutex);
      sentences.emplace_back(record.message);
    };
  }

  std::mutex mutex;
  std::vector<std::string> sentences;  // Guarded by mutex.
};

}  // namespace

TEST_CASE("Without a sink nothing is logged and no sentence is made", "[words][R38]") {
  set_log_sink({});
  bool is_made = false;
  log(LogLevel::error, "object", [&] {
    is_made = true;
    return std::string();
  });
  CHECK(!is_made);
  CHECK(!logs(LogLevel::error));
}

TEST_CASE("A sink is told level object message and time", "[words][R38]") {
  const Silence silence;
  struct Copy {
    LogLevel level;
    std::string object;
    std::string message;
    std::chrono::system_clock::time_point time;
  };
  std::vector<Copy> told;
  set_log_sink([&](const LogRecord& record) {
    told.push_back({record.level, std::string(record.object), std::string(record.message), record.time});
  });
  const auto before = std::chrono::system_clock::now();
  const std::array levels{LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};
  for (const LogLevel level : levels) log(level, "graph", [&] { return std::string(to_string(level)); });
  const auto after = std::chrono::system_clock::now();
  REQUIRE(told.size() == levels.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    CHECK(told[i].level == levels[i]);
    CHECK(told[i].object == "graph");
    CHECK(told[i].message == to_string(levels[i]));
    CHECK(told[i].time >= before);
    CHECK(told[i].time <= after);
  }
  CHECK(told[0].message == "debug");
  CHECK(told[1].message == "info");
  CHECK(told[2].message == "warning");
  CHECK(told[3].message == "error");
}

TEST_CASE("What is below the least level is not logged and no sentence of it is made", "[words][R38]") {
  const Silence silence;
  Heard heard;
  set_log_sink(heard.sink(), LogLevel::warning);
  bool is_made = false;
  log(LogLevel::info, "object", [&] {
    is_made = true;
    return std::string("info");
  });
  log(LogLevel::warning, "object", [] { return std::string("warning"); });
  CHECK(!is_made);
  CHECK(heard.sentences == std::vector<std::string>{"warning"});
}

TEST_CASE("A number that is no level is refused and the sink stays", "[words][R38]") {
  const Silence silence;
  Heard heard;
  set_log_sink(heard.sink());
  const Error error = refusal([] { set_log_sink([](const LogRecord&) {}, static_cast<LogLevel>(9)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.what(), "The least level of the log is 9, which is none."));
  say("still here");
  CHECK(heard.sentences == std::vector<std::string>{"still here"});
}

TEST_CASE("What a sink or the making of a sentence throws is dropped", "[words][R38]") {
  const Silence silence;
  int calls = 0;
  set_log_sink([&](const LogRecord&) {
    if (++calls == 1) throw std::runtime_error("the sink's");
  });
  say("first");
  log(kAnyLevel, "object", []() -> std::string { throw std::runtime_error("the sentence's"); });
  say("second");
  CHECK(calls == 2);
}

TEST_CASE("What a sink has weft log is dropped", "[words][R38]") {
  const Silence silence;
  std::vector<std::string> told;
  set_log_sink([&](const LogRecord& record) {
    told.emplace_back(record.message);
    say("from the sink");
  });
  say("outer");
  say("next");
  CHECK(told == std::vector<std::string>{"outer", "next"});
}

TEST_CASE("A sink may replace itself and is destroyed behind its call", "[words][R38]") {
  const Silence silence;
  Heard next;
  auto alive = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = alive;
  bool is_alive_after = false;
  set_log_sink([&, alive = std::move(alive)](const LogRecord&) {
    set_log_sink(next.sink());
    is_alive_after = *alive == 1 && !watched.expired();
  });
  say("replaces");
  CHECK(is_alive_after);
  CHECK(watched.expired());
  say("to the next");
  CHECK(next.sentences == std::vector<std::string>{"to the next"});
}

TEST_CASE("The end of a sink may log and set a sink", "[words][R38]") {
  const Silence silence;
  Heard next;
  struct Ending {
    explicit Ending(Heard& heard) : next(heard) {}
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;
    ~Ending() {
      say("dropped");
      set_log_sink(next.sink());
    }
    Heard& next;
  };
  set_log_sink([ending = std::make_shared<Ending>(next)](const LogRecord&) { static_cast<void>(ending); });
  set_log_sink([](const LogRecord&) {});
  say("kept");
  CHECK(next.sentences == std::vector<std::string>{"kept"});
}

TEST_CASE("Two threads in one sink may both replace it", "[words][R38]") {
  const Silence silence;
  std::atomic<int> inside{0};
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = alive;
  set_log_sink([&inside, alive = std::move(alive)](const LogRecord&) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
    set_log_sink({});
  });
  std::thread other([] { say("one"); });
  say("two");
  other.join();
  CHECK(inside == 2);
  CHECK(watched.expired());
  CHECK(!logs(LogLevel::error));
}

TEST_CASE("A sink that was replaced is called no more and is destroyed", "[words][R38]") {
  const Silence silence;
  constexpr int kReplacements = 200;
  std::atomic<bool> is_over{false};
  std::atomic<int> late{0};
  std::atomic<std::uint64_t> told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!is_over) say("again");
    });
  }
  int kept = 0;
  bool all_logged = true;
  for (int i = 0; i < kReplacements; ++i) {
    auto is_current = std::make_shared<std::atomic<bool>>(true);
    auto owner = std::make_shared<int>(i);
    const std::weak_ptr<int> watched = owner;
    set_log_sink([&, is_current, owner = std::move(owner)](const LogRecord&) {
      ++told;
      if (!*is_current) ++late;
    });
    const std::uint64_t before = told;
    all_logged = eventually([&] { return told > before; }) && all_logged;
    set_log_sink({});
    *is_current = false;
    if (!watched.expired()) ++kept;
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(all_logged);
  CHECK(late == 0);
  CHECK(kept == 0);
}

TEST_CASE("A forked child is silent until it sets a sink of its own", "[words][R38][fork]") {
  const Silence silence;
  bool is_child = false;
  bool is_told = false;
  set_log_sink([&](const LogRecord&) { is_told = is_child; });
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    is_child = true;
    ::alarm(20);
    say("to nobody");
    if (is_told) std::_Exit(1);
    Heard own;
    set_log_sink(own.sink());
    say("to its own");
    set_log_sink({});
    std::_Exit(own.sentences.size() == 1 && !is_told ? 0 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(logs(LogLevel::debug));
}

TEST_CASE("The spdlog sink passes level message and time on", "[words][edges][R38]") {
  const Silence silence;
  std::ostringstream text;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  const auto logger = std::make_shared<spdlog::logger>("backend", sink);
  logger->set_level(spdlog::level::debug);
  logger->set_pattern("%n %l %v");
  set_log_sink(spdlog_sink(logger));
  log(LogLevel::debug, "a", [] { return std::string("Braces {} stay."); });
  log(LogLevel::info, "b", [] { return std::string("info"); });
  log(LogLevel::warning, "c", [] { return std::string("warning"); });
  log(LogLevel::error, "d", [] { return std::string("error"); });
  CHECK(text.str() ==
        "backend debug Braces {} stay.\nbackend info info\nbackend warning warning\nbackend error error\n");
  text.str("");
  logger->set_pattern("%E %v");
  spdlog_sink(logger)({LogLevel::info, "e", "then", std::chrono::system_clock::time_point(std::chrono::seconds(42))});
  CHECK(text.str() == "42 then\n");
}

}  // namespace weft::test
