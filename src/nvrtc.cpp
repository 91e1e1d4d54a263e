#include "error_context.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/nvrtc.h>

#include <nvrtc.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace weft::nvrtc {

namespace {

void check(nvrtcResult result, const char* call) {
  if (result == NVRTC_SUCCESS) return;
  throw Error(result == NVRTC_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::internal,
              fmt::format("NVRTC fails: {} ({}).", nvrtcGetErrorString(result), call));
}

class Program {
 public:
  Program(const std::string& source, const CompileOptions& options) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const Header& header : options.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    check(nvrtcCreateProgram(&program_, source.c_str(), options.label.c_str(), static_cast<int>(names.size()),
                             texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { static_cast<void>(nvrtcDestroyProgram(&program_)); }

  [[nodiscard]] nvrtcProgram get() const noexcept { return program_; }

  [[nodiscard]] std::string log() const {
    std::size_t size = 0;
    check(nvrtcGetProgramLogSize(program_, &size), "nvrtcGetProgramLogSize");
    std::string text(size, '\0');
    check(nvrtcGetProgramLog(program_, text.data()), "nvrtcGetProgramLog");
    text.resize(text.find_last_not_of(std::string_view("\0\n", 2)) + 1);  // It ends with a zero.
    return text;
  }

  [[nodiscard]] std::vector<std::byte> output(Output kind) const {
    const bool is_cubin = kind == Output::cubin;
    std::size_t size = 0;
    check((is_cubin ? nvrtcGetCUBINSize : nvrtcGetPTXSize)(program_, &size), "nvrtcGetCUBINSize or nvrtcGetPTXSize");
    std::vector<std::byte> bytes(size);
    check((is_cubin ? nvrtcGetCUBIN : nvrtcGetPTX)(program_, reinterpret_cast<char*>(bytes.data())),
          "nvrtcGetCUBIN or nvrtcGetPTX");
    return bytes;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

void require_architecture(std::uint32_t architecture) {
  int count = 0;
  check(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(nvrtcGetSupportedArchs(known.data()), "nvrtcGetSupportedArchs");
  if (std::ranges::find(known, static_cast<int>(architecture)) != known.end()) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("The architecture is {}; this NVRTC knows {}.", architecture, fmt::join(known, ", ")));
}

// The library reads each text up to its first zero.
void require_no_zero(const std::string& what, const std::string& text) {
  if (const std::size_t at = text.find('\0'); at != std::string::npos)
    refuse(fmt::format("The {} has a zero at byte {}; it is a text.", what, at));
}

void require_texts(const std::string& source, const CompileOptions& options) {
  require_no_zero("source", source);
  require_no_zero("label", options.label);
  for (const Header& header : options.headers) {
    require_no_zero("name of a header", header.name);
    require_no_zero(fmt::format("header \"{}\"", header.name), header.text);
  }
  for (const std::string& kernel : options.kernels) require_no_zero("name of a kernel", kernel);
  for (const std::string& option : options.options) {
    require_no_zero("option", option);
    if (option.starts_with("-arch") || option.starts_with("--gpu-architecture"))
      refuse(fmt::format("The option \"{}\" names an architecture; CompileOptions::architecture does.", option));
    if (option.starts_with("-dlto") || option.starts_with("--dlink-time-opt"))
      refuse(fmt::format("The option \"{}\" leaves no code that can be loaded.", option));
  }
}

void add_kernels(const Program& program, const std::vector<std::string>& kernels) {
  for (const std::string& kernel : kernels) {
    if (nvrtcAddNameExpression(program.get(), kernel.c_str()) != NVRTC_SUCCESS)
      refuse(fmt::format("The kernel \"{}\" is no name of C++.", kernel));
  }
}

void run_compiler(const Program& program, const CompileOptions& options) {
  std::vector<std::string> arguments = options.options;
  arguments.push_back(fmt::format("--gpu-architecture={}_{}", options.output == Output::cubin ? "sm" : "compute",
                                  options.architecture));
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  const nvrtcResult result = nvrtcCompileProgram(program.get(), static_cast<int>(pointers.size()), pointers.data());
  if (result == NVRTC_SUCCESS) return;
  const std::string log = program.log();
  refuse(fmt::format("NVRTC does not compile the source ({}){}{}", nvrtcGetErrorString(result),
                     log.empty() ? "." : ":\n", log));
}

std::map<std::string, std::string, std::less<>> lowered_names(const Program& program,
                                                              const std::vector<std::string>& kernels) {
  std::map<std::string, std::string, std::less<>> names;
  for (const std::string& kernel : kernels) {
    const char* name = nullptr;
    check(nvrtcGetLoweredName(program.get(), kernel.c_str(), &name), "nvrtcGetLoweredName");
    names.emplace(kernel, name);
  }
  return names;
}

}  // namespace

struct CompiledSource::Code {
  std::string label;
  std::vector<std::byte> bytes;
  std::string log;
  std::map<std::string, std::string, std::less<>> names;  // As they are lowered, by what they are called in C++.
};

CompiledSource::CompiledSource(std::shared_ptr<const Code> code) noexcept : code_(std::move(code)) {}

const std::string& CompiledSource::lowered_name(std::string_view kernel) const {
  const auto found = code_->names.find(kernel);
  if (found == code_->names.end()) {
    refuse(fmt::format("The source \"{}\" is compiled for no kernel called \"{}\"; CompileOptions::kernels has {}.",
                       code_->label, kernel, code_->names.size()));
  }
  return found->second;
}

KernelSpec CompiledSource::spec(KernelSpec spec) const {
  if (!spec.image.bytes.empty() || spec.image.native.function != nullptr) {
    refuse(fmt::format("The spec of \"{}\" has the image \"{}\" already; its code is that of the source \"{}\".",
                       spec.name(), spec.image.label, code_->label));
  }
  if (const auto found = code_->names.find(spec.symbol); found != code_->names.end()) {
    if (spec.label.empty()) spec.label = spec.symbol;
    spec.symbol = found->second;
  }
  spec.image = {.bytes = code_->bytes, .label = code_->label, .native = {}, .owner = code_};
  return spec;
}

std::span<const std::byte> CompiledSource::bytes() const noexcept { return code_->bytes; }

const std::string& CompiledSource::log() const noexcept { return code_->log; }

CompiledSource compile(const std::string& source, CompileOptions options) {
  return in_context(
      [&] { return fmt::format("compiling the source \"{}\"", options.label); },
      [&] {
        require_enumerator("output", options.output, Output::ptx);
        require_architecture(options.architecture);
        require_texts(source, options);
        const Program program(source, options);
        add_kernels(program, options.kernels);
        run_compiler(program, options);
        return CompiledSource(std::make_shared<const CompiledSource::Code>(CompiledSource::Code{
            options.label, program.output(options.output), program.log(), lowered_names(program, options.kernels)}));
      });
}

}  // namespace weft::nvrtc
