#include "checked_math.h"
#include "error_context.h"
#include <weft/error.h>
#include <weft/safetensors.h>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace weft {

namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "The format is little-endian, and bytes are handed out as they stand.");

// The format's own limit, against files that make readers allocate without end.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxDepth = 3;  // Header, tensor, shape.
constexpr std::string_view kMetadata = "__metadata__";

[[noreturn]] void refuse(std::string sentence) { throw Error(ErrorCode::io, std::move(sentence)); }

/// Text of the file in quotes, safe to print: short, and control characters escaped.
std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  const std::string_view shown = text.substr(0, kLongest);
  return Json(shown).dump(-1, ' ', false, Json::error_handler_t::replace) + (shown.size() < text.size() ? "..." : "");
}

struct ElementType {
  std::string_view name;
  std::uint64_t size;
  std::optional<DType> dtype;  // Empty: of the format, but not of weft.
};

constexpr ElementType kElementTypes[] = {
    {"F32", 4, DType::f32}, {"F64", 8, DType::f64}, {"F16", 2, DType::f16}, {"BF16", 2, DType::bf16},
    {"I32", 4, DType::i32}, {"U32", 4, DType::u32}, {"I64", 8, DType::i64}, {"U8", 1, DType::u8},
    {"I8", 1, DType::i8},   {"BOOL", 1, {}},        {"I16", 2, {}},         {"U16", 2, {}},
    {"U64", 8, {}},         {"F8_E4M3", 1, {}},     {"F8_E5M2", 1, {}},
};

const ElementType* find_element_type(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kElementTypes, name, &ElementType::name);
  return found != std::end(kElementTypes) ? found : nullptr;
}

/// Bytes [begin, end) of the data section.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Entry {
  std::string element_type;
  Shape shape;
  ByteRange range;
};

using Entries = std::map<std::string, Entry, std::less<>>;

[[noreturn]] void refuse_errno(std::string_view what) {
  refuse(fmt::format("The file {}: {}.", what, std::generic_category().message(errno)));
}

/// An open file.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      // Without O_NONBLOCK, opening a named pipe would wait for its writer.
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (value_ < 0) refuse_errno("cannot be opened");
  }
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_;
};

/// A file mapped for reading.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const Descriptor file(path);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) refuse_errno("cannot be examined");
    if (!S_ISREG(status.st_mode)) refuse("The path does not name a regular file.");
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ < kLengthBytes) {
      refuse(fmt::format("The file has {} bytes; its header's length alone takes {}.", size_, kLengthBytes));
    }
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address_ == MAP_FAILED) refuse_errno("cannot be mapped");
  }
  ~Mapping() { ::munmap(address_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(address_), size_};
  }

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

/// Parses JSON and refuses what the parser itself would let pass: repeated keys (the last would win) and deep nesting.
Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&keys](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && static_cast<std::size_t>(depth) >= kMaxDepth) {
      refuse(fmt::format("The header nests deeper than {} levels.", kMaxDepth));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      refuse(fmt::format("The header repeats the key {}.", printable(value.get_ref<const std::string&>())));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    refuse(fmt::format("The header is not JSON: the parser stops at byte {} of {}.", error.byte, text.size()));
  } catch (const Json::exception& error) {
    refuse(fmt::format("The header is not JSON that can be read: {}.", printable(error.what())));
  }
}

std::string_view header_text(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes)
    refuse(fmt::format("The header has {} bytes; the limit is {}.", length, kMaxHeaderBytes));
  if (length > file.size() - kLengthBytes) {
    refuse(fmt::format("The header has {} bytes, and {} bytes of the file follow its length.", length,
                       file.size() - kLengthBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  if (!text.starts_with('{')) refuse("The header does not begin with '{'.");
  return text;
}

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("The field \"{}\" is missing.", name));
  return *found;
}

std::vector<std::uint64_t> counts(const Json& object, const char* name) {
  const Json& list = field(object, name);
  if (!list.is_array()) refuse(fmt::format("The field \"{}\" is not a list.", name));
  std::vector<std::uint64_t> result;
  result.reserve(list.size());
  for (const Json& value : list) {
    if (!value.is_number_unsigned()) {
      refuse(fmt::format("The field \"{}\" holds {} at position {}, which is not a whole number from 0 to {}.", name,
                         printable(value.dump()), result.size(), std::numeric_limits<std::uint64_t>::max()));
    }
    result.push_back(value.get<std::uint64_t>());
  }
  return result;
}

ByteRange read_range(const Json& object, std::uint64_t data_bytes) {
  const auto offsets = counts(object, "data_offsets");
  if (offsets.size() != 2)
    refuse(fmt::format("The field \"data_offsets\" holds {} numbers; it needs 2.", offsets.size()));
  const ByteRange range{offsets[0], offsets[1]};
  if (range.begin > range.end)
    refuse(fmt::format("The data ends at byte {}, before it begins at byte {}.", range.end, range.begin));
  if (range.end > data_bytes)
    refuse(fmt::format("The data ends at byte {}; the file holds {} bytes of data.", range.end, data_bytes));
  return range;
}

/// Bytes of all elements, or empty beyond 64 bits.
std::optional<std::uint64_t> size_in_bytes(const Shape& shape, std::uint64_t element) {
  if (std::ranges::find(shape, 0u) != shape.end()) return 0;
  std::optional<std::uint64_t> size = element;
  for (const std::uint64_t dimension : shape) {
    size = checked_multiply(*size, dimension);
    if (!size) return {};
  }
  return size;
}

void check_size(const Entry& entry) {
  const ElementType* type = find_element_type(entry.element_type);
  if (type == nullptr) return;  // Its size is unknown; `tensor` refuses it.
  const auto needed = size_in_bytes(entry.shape, type->size);
  if (!needed) refuse(fmt::format("The shape with elements of {} bytes takes 2^64 bytes or more.", type->size));
  const std::uint64_t given = entry.range.end - entry.range.begin;
  if (*needed != given) {
    refuse(fmt::format("The field \"data_offsets\" gives {} bytes; the shape takes {} as {}.", given, *needed,
                       type->name));
  }
}

Entry read_entry(const Json& object, std::uint64_t data_bytes) {
  if (!object.is_object()) refuse("The tensor is not described by an object.");
  const Json& type = field(object, "dtype");
  if (!type.is_string()) refuse("The field \"dtype\" is not a string.");
  Entry entry{type.get<std::string>(), counts(object, "shape"), read_range(object, data_bytes)};
  for (const auto& item : object.items()) {
    // An unknown field may change what the bytes mean.
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      refuse(
          fmt::format("The field {} is not one of \"dtype\", \"shape\" and \"data_offsets\".", printable(item.key())));
    }
  }
  check_size(entry);
  return entry;
}

std::map<std::string, std::string> read_metadata(const Json& object) {
  if (!object.is_object()) refuse(fmt::format("The field \"{}\" is not an object.", kMetadata));
  std::map<std::string, std::string> metadata;
  for (const auto& item : object.items()) {
    if (!item.value().is_string())
      refuse(fmt::format("The field {} of \"{}\" is not a string.", printable(item.key()), kMetadata));
    metadata.emplace(item.key(), item.value().get<std::string>());
  }
  return metadata;
}

/// The format lets every byte of data belong to exactly one tensor.
void check_coverage(const Entries& entries, std::uint64_t data_bytes) {
  std::vector<const Entries::value_type*> sorted;
  sorted.reserve(entries.size());
  for (const auto& entry : entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {},
                    [](const auto* entry) { return std::pair(entry->second.range.begin, entry->second.range.end); });

  std::uint64_t covered = 0;
  const Entries::value_type* previous = nullptr;
  for (const auto* entry : sorted) {
    const std::uint64_t begin = entry->second.range.begin;
    if (begin < covered) {
      refuse(
          fmt::format("The tensors {} and {} overlap: the second begins at byte {}, before the first ends at byte {}.",
                      printable(previous->first), printable(entry->first), begin, covered));
    }
    if (begin > covered) {
      refuse(fmt::format("The bytes {} to {} of the data, before the tensor {}, belong to no tensor.", covered, begin,
                         printable(entry->first)));
    }
    covered = entry->second.range.end;
    previous = entry;
  }
  if (covered != data_bytes) {
    refuse(fmt::format("The bytes {} to {} at the end of the data belong to no tensor.", covered, data_bytes));
  }
}

}  // namespace

struct Safetensors::File {
  std::filesystem::path path;
  Mapping mapping;
  std::span<const std::byte> data;
  Entries entries;
  std::map<std::string, std::string> metadata;

  explicit File(const std::filesystem::path& from) : path(from), mapping(from) {
    const auto file = mapping.bytes();
    const std::string_view header = header_text(file);
    data = file.subspan(kLengthBytes + header.size());
    const Json root = parse_json(header);
    for (const auto& item : root.items()) {
      if (item.key() == kMetadata) {
        metadata = read_metadata(item.value());
        continue;
      }
      in_context([&] { return fmt::format("reading the tensor {}", printable(item.key())); },
                 [&] { entries.emplace(item.key(), read_entry(item.value(), data.size())); });
    }
    check_coverage(entries, data.size());
  }

  /// The names that stand beside a missing one in sorted order, for a message.
  [[nodiscard]] std::string neighbours(std::string_view name) const {
    if (entries.empty()) return "";
    const auto after = entries.lower_bound(name);
    if (after == entries.end()) return fmt::format(", the nearest {}", printable(std::prev(after)->first));
    if (after == entries.begin()) return fmt::format(", the nearest {}", printable(after->first));
    return fmt::format(", the nearest {} and {}", printable(std::prev(after)->first), printable(after->first));
  }
};

Safetensors::Safetensors(std::shared_ptr<const File> file) : file_(std::move(file)) {}

Safetensors Safetensors::open(const std::filesystem::path& path) {
  return in_context([&] { return fmt::format("opening the safetensors file \"{}\"", path.string()); },
                    [&] { return Safetensors(std::make_shared<const File>(path)); });
}

HostTensor Safetensors::tensor(std::string_view name) const {
  const auto found = file_->entries.find(name);
  if (found == file_->entries.end()) {
    throw Error(ErrorCode::invalid,
                fmt::format("The safetensors file \"{}\" has no tensor {}; it has {}{}.", file_->path.string(),
                            printable(name), file_->entries.size(), file_->neighbours(name)));
  }
  const auto& [label, entry] = *found;
  const ElementType* type = find_element_type(entry.element_type);
  if (type == nullptr || !type->dtype) {
    refuse(
        fmt::format("The tensor {} of the safetensors file \"{}\" has the element type {}, which weft does not have.",
                    printable(label), file_->path.string(), printable(entry.element_type)));
  }
  const auto bytes = file_->data.subspan(static_cast<std::size_t>(entry.range.begin),
                                         static_cast<std::size_t>(entry.range.end - entry.range.begin));
  return {TensorDesc(*type->dtype, entry.shape), bytes, label};
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  names.reserve(file_->entries.size());
  for (const auto& entry : file_->entries) names.push_back(entry.first);
  return names;
}

const std::map<std::string, std::string>& Safetensors::metadata() const noexcept { return file_->metadata; }

}  // namespace weft
