#include "tools/program.h"

#include "support/deadlines.h"
#include "support/device.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::test {

namespace {

std::string path_of(std::string_view name) {
  if (name == "weft-digits") return WEFT_DIGITS_PROGRAM;
  if (name == "weft-encoder") return WEFT_ENCODER_PROGRAM;
  if (name == "weft-inspect") return WEFT_INSPECT_PROGRAM;
  if (name == "weft-serve-example") return WEFT_SERVE_EXAMPLE_PROGRAM;
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

RunningProgram::RunningProgram(std::string_view name, const std::vector<std::string>& arguments) {
  // Not even a test that is killed leaves the program behind.
  std::vector<std::string> words{"timeout", "120", path_of(name)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const auto redirect = [&](int fd, const char* file) {
    ::posix_spawn_file_actions_addopen(&actions, fd, (folder_.path() / file).c_str(), O_WRONLY | O_CREAT, 0600);
  };
  redirect(STDOUT_FILENO, "output");
  redirect(STDERR_FILENO, "errors");
  const int refused = ::posix_spawnp(&process_, "timeout", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) throw std::runtime_error("The program does not start: " + words[2]);
}

RunningProgram::~RunningProgram() {
  if (process_ < 0) return;
  ::kill(process_, SIGTERM);
  ::waitpid(process_, nullptr, 0);
}

std::string RunningProgram::wait_for_line(std::string_view start) const {
  std::string rest;
  const bool found = eventually([&] {
    std::istringstream output(read_text(folder_.path() / "output"));
    for (std::string line; std::getline(output, line) && !output.eof();) {
      if (!line.starts_with(start)) continue;
      rest = line.substr(start.size());
      return true;
    }
    return false;
  });
  if (!found) throw std::runtime_error("The program does not say: " + std::string(start));
  return rest;
}

ProgramResult RunningProgram::terminate() {
  ::kill(process_, SIGTERM);
  return finish();
}

ProgramResult RunningProgram::finish() {
  int status = 0;
  if (!eventually([&] { return ::waitpid(process_, &status, WNOHANG) == process_; }))
    throw std::runtime_error("The program does not end.");
  process_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder_.path() / "output"),
          read_text(folder_.path() / "errors")};
}

std::string device_argument() { return on_cuda() ? "cuda" : "host"; }

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace weft::test
