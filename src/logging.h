#pragma once

#include <weft/log.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace detail {

/// The least level that the sink is told; one above the highest without a sink.
inline constexpr std::uint8_t kLogsNothing = static_cast<std::uint8_t>(LogLevel::error) + 1;
inline constinit std::atomic<std::uint8_t> least_logged{kLogsNothing};

/// Never throws: what cannot be told is dropped.
void log(LogLevel level, std::string_view object, std::string_view message) noexcept;

}  // namespace detail

[[nodiscard]] inline bool logs(LogLevel level) noexcept {
  return static_cast<std::uint8_t>(level) >= detail::least_logged.load(std::memory_order_relaxed);
}

/// Tells the sink, if there is one, the sentence that `message()` returns; it is called only then, and may throw.
template <class Message>
void log(LogLevel level, std::string_view object, Message&& message) noexcept {
  if (!logs(level)) return;
  try {
    const std::string sentence = std::forward<Message>(message)();
    detail::log(level, object, sentence);
  } catch (...) {  // No memory for the sentence: what cannot be told is dropped.
  }
}

}  // namespace weft
