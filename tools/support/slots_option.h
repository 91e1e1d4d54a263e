#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace weft::tools {

/// Adds `--slots N`, a number that a program can hold; `slots` must live while the command line is read.
void add_slots_option(CLI::App& app, std::uint32_t& slots);

}  // namespace weft::tools
