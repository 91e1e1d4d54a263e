#include "error_context.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/triton.h>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace weft::triton {

namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxClusterBlocks = 16;

[[noreturn]] void malformed(std::string sentence) { throw Error(ErrorCode::io, std::move(sentence)); }
[[noreturn]] void unsupported(std::string sentence) { throw Error(ErrorCode::unsupported, std::move(sentence)); }

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) malformed(fmt::format("The file {} cannot be read: {}.", path.string(), error.message()));
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size)))
    malformed(fmt::format("The file {} cannot be read to its end.", path.string()));
  return bytes;
}

/// A field's value as messages show it. Nothing nested: a file may nest deeper than a stack goes.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 100;
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  // Bytes that are no UTF-8 stand as U+FFFD.
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kMost);
}

/// The fields of a metadata file.
class Metadata {
 public:
  static Metadata parse(std::span<const std::byte> bytes) {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    Json json = Json::parse(text, text + bytes.size(), nullptr, false);
    if (json.is_discarded() || !json.is_object()) malformed("The file is no JSON object.");
    return Metadata(std::move(json));
  }

  [[nodiscard]] bool has(const char* name) const { return json_.contains(name) && !json_.at(name).is_null(); }

  [[nodiscard]] const Json& field(const char* name) const {
    if (!json_.contains(name)) malformed(fmt::format("The file has no field \"{}\".", name));
    return json_.at(name);
  }

  [[nodiscard]] std::string text(const char* name) const {
    const Json& value = field(name);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      malformed(fmt::format("The field \"{}\" is {}; it must be a text that is not empty.", name, shown(value)));
    if (value.get_ref<const std::string&>().find('\0') != std::string::npos)
      malformed(fmt::format("The field \"{}\" is {}; a name has no zero in it.", name, shown(value)));
    return value.get<std::string>();
  }

  [[nodiscard]] std::uint32_t number(const char* name, std::uint32_t least,
                                     std::uint32_t most = std::numeric_limits<std::uint32_t>::max()) const {
    const Json& value = field(name);
    // A negative number of JSON is no unsigned one.
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most)
      malformed(fmt::format("The field \"{}\" is {}; it must be between {} and {}.", name, shown(value), least, most));
    return value.get<std::uint32_t>();
  }

  /// False where there is none: versions of Triton differ in what they know.
  [[nodiscard]] bool flag(const char* name) const {
    if (!has(name)) return false;
    const Json& value = field(name);
    if (!value.is_boolean())
      malformed(fmt::format("The field \"{}\" is {}; it must be true or false.", name, shown(value)));
    return value.get<bool>();
  }

 private:
  explicit Metadata(Json json) : json_(std::move(json)) {}

  Json json_;
};

struct Target {
  std::string backend;
  std::uint32_t architecture = 0;
};

/// What stands behind `key` in the text of a GPUTarget, up to the next comma or the end.
std::string_view part_of(std::string_view text, std::string_view key) {
  const std::size_t start = text.find(key);
  if (start == std::string_view::npos) return {};
  const std::string_view rest = text.substr(start + key.size());
  return rest.substr(0, rest.find_first_of(",)"));
}

// The field is an object, or the text "GPUTarget(backend='cuda', arch=90, warp_size=32)".
Target read_target(const Metadata& metadata) {
  const Json& value = metadata.field("target");
  Target target;
  bool is_valid = false;
  if (value.is_object() && value.contains("backend") && value["backend"].is_string() && value.contains("arch")) {
    target.backend = value["backend"].get<std::string>();
    const Json& arch = value["arch"];
    const bool is_number =
        arch.is_number_unsigned() && arch.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
    is_valid = is_number || target.backend != "cuda";
    if (is_number) target.architecture = arch.get<std::uint32_t>();
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    std::string_view backend = part_of(text, "backend=");
    if (backend.size() > 2) backend = backend.substr(1, backend.size() - 2);
    target.backend = backend;
    const std::string_view arch = part_of(text, "arch=");
    const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), target.architecture);
    is_valid = !backend.empty() && (backend != "cuda" || (error == std::errc{} && end == arch.data() + arch.size()));
  }
  if (!is_valid)
    malformed(fmt::format("The field \"target\" is {}; it must have a backend and an arch.", shown(value)));
  return target;
}

/// Pointers behind the parameters: newer versions of Triton pass more of them, and say the size of each.
std::uint32_t count_scratch_pointers(const Metadata& metadata) {
  std::uint32_t count = 0;
  for (const char* name : {"global_scratch_size", "profile_scratch_size"}) {
    if (!metadata.has(name)) continue;
    ++count;
    if (const std::uint32_t bytes = metadata.number(name, 0); bytes != 0)
      unsupported(fmt::format("The kernel needs scratch ({} is {}), which weft does not give.", name, bytes));
  }
  return count;
}

Dim3 read_cluster(const Metadata& metadata) {
  if (!metadata.has("num_ctas")) return {};
  return {metadata.number("num_ctas", 1, kMaxClusterBlocks), 1, 1};
}

void require_supported(const Metadata& metadata, const Target& target) {
  if (target.backend != "cuda")
    unsupported(
        fmt::format("The kernel is compiled for the backend \"{}\"; weft runs code for \"cuda\".", target.backend));
  if (metadata.has("tensordesc_meta") && !metadata.field("tensordesc_meta").empty())
    unsupported("The kernel takes tensor descriptors (tensordesc_meta is not empty), which weft does not make.");
}

/// What the files say is not the caller's to say.
void require_open(const KernelSpec& spec) {
  const auto require = [](bool is_open, const char* what) {
    if (!is_open) refuse(fmt::format("The spec says its {}, which the file does.", what));
  };
  require(spec.image.bytes.empty() && spec.image.native.function == nullptr, "image");
  require(spec.symbol.empty(), "symbol");
  require(spec.block == Dim3{}, "block");
  require(spec.cluster == Dim3{}, "cluster");
  require(!spec.cooperative, "cooperation");
  require(spec.dynamic_shared_bytes == 0, "dynamic shared memory");
  require(spec.hidden_pointers == 0, "hidden pointers");
}

CodeImage read_image(const std::filesystem::path& path, const Target& target) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(read_file(path));
  if (bytes->empty()) malformed(fmt::format("The file {} is empty.", path.string()));
  return {.bytes = *bytes,
          .label = fmt::format("{} for sm_{}", path.filename().string(), target.architecture),
          .native = {},
          .owner = bytes};
}

}  // namespace

KernelSpec kernel(const std::filesystem::path& metadata, KernelSpec spec) {
  return in_context([&] { return fmt::format("reading the Triton kernel {}", metadata.string()); },
                    [&] {
                      require_open(spec);
                      const Metadata fields = Metadata::parse(read_file(metadata));
                      const Target target = read_target(fields);
                      require_supported(fields, target);
                      const std::uint32_t warp = fields.number("warp_size", 1, kMaxThreads);
                      spec.symbol = fields.text("name");
                      spec.block = {warp * fields.number("num_warps", 1, kMaxThreads / warp), 1, 1};
                      spec.cluster = read_cluster(fields);
                      spec.cooperative = fields.flag("launch_cooperative_grid");
                      spec.dynamic_shared_bytes = fields.number("shared", 0);
                      spec.hidden_pointers = count_scratch_pointers(fields);
                      if (spec.launch) {
                        spec.launch = [rule = std::move(spec.launch),
                                       shared = spec.dynamic_shared_bytes](std::span<const std::uint64_t> workload) {
                          LaunchConfig launch = rule(workload);
                          launch.dynamic_shared_bytes = shared;
                          return launch;
                        };
                      }
                      spec.image = read_image(std::filesystem::path(metadata).replace_extension(".cubin"), target);
                      return std::move(spec);
                    });
}

}  // namespace weft::triton
