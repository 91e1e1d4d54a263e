#pragma once

#include <filesystem>
#include <string>
#include <string_view>
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

/// Runs one of this build's programs: "weft-digits", "weft-inspect" or "weft-bench".
[[nodiscard]] ProgramResult run_program(std::string_view name, const std::vector<std::string>& arguments);

/// `--device` as the suite's device is called.
[[nodiscard]] std::string device_argument();

[[nodiscard]] std::string read_text(const std::filesystem::path& path);

}  // namespace weft::test
