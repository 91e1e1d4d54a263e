#include "device/cubin.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weft {

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kInfoPrefix = ".nv.info.";
constexpr std::uint8_t kSizedFormat = 4;  // EIFMT_SVAL; those below have no payload.
constexpr std::uint8_t kParameterInfo = 0x17;
constexpr std::uint8_t kParameterInfoV2 = 0x45;
constexpr std::size_t kParameterInfoBytes = 12;

/// The range's bytes; none when they do not all lie inside.
std::optional<Bytes> slice(Bytes bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

template <class T>
requires std::is_trivially_copyable_v<T> std::optional<T> read(Bytes bytes, std::uint64_t offset) {
  const auto source = slice(bytes, offset, sizeof(T));
  if (!source) return {};
  T value;
  std::memcpy(&value, source->data(), sizeof(T));
  return value;
}

struct Record {
  std::uint8_t format = 0;
  std::uint8_t attribute = 0;
  Bytes payload;
};

/// Takes the next record off `records`; empty when it is malformed.
std::optional<Record> take_record(Bytes& records) {
  const auto format = read<std::uint8_t>(records, 0);
  const auto attribute = read<std::uint8_t>(records, 1);
  const auto value = read<std::uint16_t>(records, 2);
  if (!value || *format == 0 || *format > kSizedFormat) return {};
  records = records.subspan(4);
  const std::uint16_t payload_bytes = *format == kSizedFormat ? *value : std::uint16_t{0};
  const auto payload = slice(records, 0, payload_bytes);
  if (!payload) return {};
  records = records.subspan(payload_bytes);
  return Record{*format, *attribute, *payload};
}

using Ordinal = std::pair<std::uint16_t, CubinParameter>;

Ordinal read_parameter(const Record& record) {
  const auto ordinal = read<std::uint16_t>(record.payload, 4).value();
  const auto offset = read<std::uint16_t>(record.payload, 6).value();
  const auto packed = read<std::uint32_t>(record.payload, 8).value();
  if (record.attribute == kParameterInfo) return {ordinal, {offset, packed >> 18, packed >> 8 & 0xf}};
  return {ordinal, {offset, packed & 0xffff, packed >> 24}};
}

/// The parameters in order; empty when the records do not make sense together.
std::optional<std::vector<CubinParameter>> read_parameters(Bytes records) {
  std::vector<Ordinal> found;
  while (!records.empty()) {
    const auto record = take_record(records);
    if (!record) return {};
    if (record->attribute != kParameterInfo && record->attribute != kParameterInfoV2) continue;
    if (record->format != kSizedFormat || record->payload.size() != kParameterInfoBytes) return {};
    found.push_back(read_parameter(*record));
  }
  std::ranges::sort(found, {}, &Ordinal::first);
  std::vector<CubinParameter> parameters;
  for (const auto& [ordinal, parameter] : found) {
    if (ordinal != parameters.size()) return {};
    parameters.push_back(parameter);
  }
  return parameters;
}

/// What the records of one kernel stand in.
struct InfoSection {
  std::string_view symbol;
  Bytes records;
};

class Elf {
 public:
  /// Empty when the image is no ELF file of 64 bits and this machine's byte order.
  static std::optional<Elf> open(Bytes image) {
    const auto header = read<Elf64_Ehdr>(image, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return {};
    if (header->e_shentsize != sizeof(Elf64_Shdr)) return {};
    const auto headers = slice(image, header->e_shoff, std::uint64_t{header->e_shnum} * sizeof(Elf64_Shdr));
    if (!headers || header->e_shstrndx >= header->e_shnum) return {};
    Elf elf(image, *headers);
    const auto names = elf.bytes_of(elf.section_header(header->e_shstrndx));
    if (!names || names->empty() || names->back() != std::byte{0}) return {};
    elf.names_ = {reinterpret_cast<const char*>(names->data()), names->size()};
    return elf;
  }

  [[nodiscard]] std::size_t size() const { return headers_.size() / sizeof(Elf64_Shdr); }
  /// Empty for a section of another kind.
  [[nodiscard]] std::optional<InfoSection> info_section(std::size_t index) const {
    const Elf64_Shdr header = section_header(index);
    if (header.sh_name >= names_.size()) return {};
    const std::string_view from_name = names_.substr(header.sh_name);
    if (!from_name.starts_with(kInfoPrefix)) return {};
    const auto records = bytes_of(header);
    if (!records) return {};
    return InfoSection{from_name.substr(0, from_name.find('\0')).substr(kInfoPrefix.size()), *records};
  }

 private:
  Elf(Bytes image, Bytes headers) : image_(image), headers_(headers) {}

  [[nodiscard]] Elf64_Shdr section_header(std::size_t index) const {
    return read<Elf64_Shdr>(headers_, index * sizeof(Elf64_Shdr)).value();
  }
  [[nodiscard]] std::optional<Bytes> bytes_of(const Elf64_Shdr& header) const {
    return header.sh_type == SHT_NOBITS ? Bytes{} : slice(image_, header.sh_offset, header.sh_size);
  }

  Bytes image_;
  Bytes headers_;
  std::string_view names_;  ///< Ends with a zero.
};

}  // namespace

CubinKernels read_cubin(std::span<const std::byte> image) {
  CubinKernels kernels;
  const auto elf = Elf::open(image);
  if (!elf) return kernels;
  // Sections of a real file do not overlap; without this bound, ones that do could take quadratic time.
  std::uint64_t unread = image.size();
  for (std::size_t i = 0; i < elf->size(); ++i) {
    const auto section = elf->info_section(i);
    if (!section) continue;
    const std::uint64_t cost = section->symbol.size() + section->records.size();
    if (cost > unread) return {};
    unread -= cost;
    if (auto parameters = read_parameters(section->records)) {
      kernels.insert_or_assign(std::string(section->symbol), std::move(*parameters));
    }
  }
  return kernels;
}

void tell_kinds(CompiledKernel& compiled, std::span<const CubinParameter> parameters) {
  using Layout = CompiledKernel::ParameterLayout;
  const auto agree = [](const Layout& layout, const CubinParameter& parameter) {
    return layout.offset == parameter.offset && layout.size == parameter.size;
  };
  if (!std::ranges::equal(compiled.parameters, parameters, agree)) return;
  const bool marks_pointers =
      std::ranges::any_of(parameters, [](const CubinParameter& parameter) { return parameter.space != 0; });
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Layout& layout = compiled.parameters[i];
    if (parameters[i].space != 0) {
      layout.kind = Layout::Kind::pointer;
    } else if (marks_pointers || layout.size != sizeof(DeviceAddress)) {
      layout.kind = Layout::Kind::value;
    }
  }
}

}  // namespace weft
