#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace weft::test {

/// A folder for one test, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a program ended.
struct ProgramResult {
  int status = 0;
  std::string output;
  std::string errors;

  [[nodiscard]] std::string last_line() const;
};

/// Runs one of this build's programs: "weft-digits", "weft-encoder", "weft-inspect", "weft-serve-example" or
/// "weft-bench".
[[nodiscard]] ProgramResult run_program(std::string_view name, const std::vector<std::string>& arguments);

/// One of this build's programs while it runs; killed with the object, and after two minutes whatever comes.
class RunningProgram {
 public:
  RunningProgram(std::string_view name, const std::vector<std::string>& arguments);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  /// What follows `start` on the first line of the output that starts so; waits for it.
  [[nodiscard]] std::string wait_for_line(std::string_view start) const;
  /// Waits for its end.
  [[nodiscard]] ProgramResult finish();
  /// Sends SIGTERM and waits for the end.
  [[nodiscard]] ProgramResult terminate();

 private:
  TemporaryFolder folder_;
  pid_t process_ = -1;  // -1 once it has ended.
};

/// `--device` as the suite's device is called.
[[nodiscard]] std::string device_argument();

[[nodiscard]] std::string read_text(const std::filesystem::path& path);

}  // namespace weft::test
