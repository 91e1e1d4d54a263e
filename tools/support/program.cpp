#include "support/program.h"

#include <weft/error.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>

namespace weft::tools {

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(app.get_name()));
  spdlog::set_pattern("%n: %v");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    spdlog::error("{} (--help tells the options.)", error.what());
    return kRefused;
  }
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
