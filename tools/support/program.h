#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace weft::tools {

/// The status of a program that could not do what it was asked for.
inline constexpr int kRefused = 2;

/// Reads the command line and runs `body`. Results go to the output stream, the program's own words to the error
/// stream; so does what weft logs: warnings and errors, all of it with --verbose.
///
/// Returns what `main` returns: the status of `body`, 0 after --help, or kRefused, behind a sentence, for a command
/// line that cannot be read and for an error.
[[nodiscard]] int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

}  // namespace weft::tools
