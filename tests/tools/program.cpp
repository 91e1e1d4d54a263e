#include "tools/program.h"

#include "support/device.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>

namespace weft::test {

namespace {

std::string path_of(std::string_view name) {
  if (name == "weft-digits") return WEFT_DIGITS_PROGRAM;
  if (name == "weft-inspect") return WEFT_INSPECT_PROGRAM;
  if (name == "weft-bench") return WEFT_BENCH_PROGRAM;
  throw std::runtime_error("There is no program \"" + std::string(name) + "\".");
}

std::string quoted(const std::string& argument) {
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "weft_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("There is no temporary folder.");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ProgramResult::last_line() const {
  const std::string_view text = std::string_view(output).substr(0, output.find_last_not_of('\n') + 1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

ProgramResult run_program(std::string_view name, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  const std::filesystem::path output = folder.path() / "output";
  const std::filesystem::path errors = folder.path() / "errors";
  std::string command = quoted(path_of(name));
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " >" + quoted(output.string()) + " 2>" + quoted(errors.string());
  const int status = std::system(command.c_str());
  if (status == -1 || !WIFEXITED(status)) throw std::runtime_error("The shell did not run: " + command);
  return {WEXITSTATUS(status), read_text(output), read_text(errors)};
}

std::string device_argument() { return on_cuda() ? "cuda" : "host"; }

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weft::test
