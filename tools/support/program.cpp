#include "support/program.h"

#include <weft/error.h>
#include <weft/log.h>
#include <weft/spdlog.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>

namespace weft::tools {

namespace {

/// weft logs where the program does, for as long as its `main` runs.
class LogToProgram {
 public:
  explicit LogToProgram(LogLevel least) { set_log_sink(spdlog_sink(spdlog::default_logger()), least); }
  LogToProgram(const LogToProgram&) = delete;
  LogToProgram& operator=(const LogToProgram&) = delete;
  ~LogToProgram() { set_log_sink({}); }
};

}  // namespace

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(app.get_name()));
  spdlog::set_pattern("%n: %v");
  spdlog::set_level(spdlog::level::debug);
  bool is_verbose = false;
  app.add_flag("--verbose", is_verbose, "Tells all that weft logs, not its warnings and errors alone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    spdlog::error("{} (--help tells the options.)", error.what());
    return kRefused;
  }
  const LogToProgram log(is_verbose ? LogLevel::debug : LogLevel::warning);
  try {
    const int status = body();
    if (std::fflush(stdout) != 0) throw Error(ErrorCode::io, "The results cannot be written to the output stream.");
    return status;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    spdlog::error("{}", error.what());
    return kRefused;
  }
}

}  // namespace weft::tools
