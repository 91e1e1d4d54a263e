#pragma once

#include <weft/export.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace weft {

enum class LogLevel : std::uint8_t {
  debug,    ///< Steps of weft's own: evictions, what was built how.
  info,     ///< What an operator asks first: which device is open.
  warning,  ///< It works, and not as it should.
  error,    ///< Something is lost, and no exception tells of it.
};

/// "debug", "info", "warning", "error".
[[nodiscard]] WEFT_API std::string_view to_string(LogLevel level) noexcept;

/// What weft has to tell. The texts live until the sink returns.
struct LogRecord {
  LogLevel level = LogLevel::info;
  std::string_view object;   ///< The label of what it is about, to filter by: "cuda:0", a graph's title.
  std::string_view message;  ///< A whole sentence; names the object as well.
  std::chrono::system_clock::time_point time;
};

using LogSink = std::function<void(const LogRecord&)>;

/// Makes weft tell `sink` what is of `least` level or above, in place of the sink before; none (the default) is silent.
/// One a process. Never said twice: what is thrown as a weft::Error is not logged.
///
/// Thread-safe. The sink is called by the thread that has something to tell, by several at once, and perhaps while weft
/// holds locks: it must not call weft, but for this function. What it throws is dropped, and so is what weft has to
/// tell on its thread meanwhile.
///
/// When this returns, the sink before is called no more and is destroyed. Called by a sink, it returns without waiting
/// for the calls that other threads are in; the sink is destroyed behind the last of them. A child of fork() and a
/// process that exits are silent: what a sink captures may be gone. A child may set a sink of its own.
///
/// Cost of weft's calls: one load without a sink, and for what is below `least`. Errors: `invalid` for a number that is
/// no level.
WEFT_API void set_log_sink(LogSink sink, LogLevel least = LogLevel::debug);

}  // namespace weft
