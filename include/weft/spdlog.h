#pragma once

// Needs spdlog, which weft itself does not ask of a program: link spdlog::spdlog or spdlog::spdlog_header_only.

#include <weft/log.h>

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

namespace weft {

[[nodiscard]] inline spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::off;
}

/// A sink that passes records on to a logger, which must be a thread-safe one (`_mt`):
/// `weft::set_log_sink(weft::spdlog_sink(spdlog::default_logger()))`. The logger's own level applies as well. Keeps it
/// alive.
[[nodiscard]] inline LogSink spdlog_sink(std::shared_ptr<spdlog::logger> logger) {
  return [logger = std::move(logger)](const LogRecord& record) {
    const spdlog::string_view_t message(record.message.data(), record.message.size());
    logger->log(record.time, spdlog::source_loc{}, to_spdlog(record.level), message);
  };
}

}  // namespace weft
