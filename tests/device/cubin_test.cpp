#include "device/cubin.h"

#include "catch.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace weft::test {

namespace {

using Layout = CompiledKernel::ParameterLayout;
using Kind = Layout::Kind;
using Parameters = std::vector<CubinParameter>;

std::vector<std::byte> read_image(const std::string& name) {
  std::ifstream file(WEFT_TEST_DATA "/" + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  INFO(name);
  REQUIRE(!text.empty());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Copied to memory of its exact size, so that a memory checker sees a read past the end.
CubinKernels read_exactly(std::span<const std::byte> bytes) {
  const auto exact = std::make_unique<std::byte[]>(bytes.size());
  std::ranges::copy(bytes, exact.get());
  return read_cubin({exact.get(), bytes.size()});
}

CompiledKernel compiled_as(const Parameters& parameters) {
  CompiledKernel compiled;
  for (const CubinParameter& parameter : parameters) compiled.parameters.push_back({parameter.offset, parameter.size});
  return compiled;
}

std::vector<Kind> kinds_of(const Parameters& parameters) {
  CompiledKernel compiled = compiled_as(parameters);
  tell_kinds(compiled, parameters);
  std::vector<Kind> kinds;
  for (const Layout& layout : compiled.parameters) kinds.push_back(layout.kind);
  return kinds;
}

constexpr std::size_t kHeaderBytes = sizeof(Elf64_Ehdr);

/// An ELF file with one section `.nv.info.k` of these records.
std::vector<std::byte> image_of(const std::vector<std::uint8_t>& records, std::uint32_t sections = 1) {
  const std::string names = ".nv.info.k" + std::string(1, '\0');
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections + 1);
  header.e_shoff = kHeaderBytes + records.size() + names.size();
  std::vector<Elf64_Shdr> table(sections + 1);
  table[0].sh_type = SHT_STRTAB;
  table[0].sh_offset = kHeaderBytes + records.size();
  table[0].sh_size = names.size();
  for (std::uint32_t i = 1; i <= sections; ++i) {
    table[i].sh_type = SHT_LOPROC;
    table[i].sh_offset = kHeaderBytes;
    table[i].sh_size = records.size();
  }
  std::vector<std::byte> image;
  const auto append = [&](const void* bytes, std::size_t count) {
    const auto* first = static_cast<const std::byte*>(bytes);
    image.insert(image.end(), first, first + count);
  };
  append(&header, sizeof(header));
  append(records.data(), records.size());
  append(names.data(), names.size());
  append(table.data(), table.size() * sizeof(Elf64_Shdr));
  return image;
}

/// EIATTR_KPARAM_INFO of an 8-byte parameter in global memory.
std::vector<std::uint8_t> pointer_record(std::uint8_t ordinal, std::uint8_t offset) {
  return {4, 0x17, 12, 0, 0, 0, 0, 0, ordinal, 0, offset, 0, 0x00, 0xf4, 0x21, 0x00};
}

std::vector<std::uint8_t> joined(std::vector<std::uint8_t> a, const std::vector<std::uint8_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const char* const kImages[] = {"triton/axpy.cubin", "triton/softmax.cubin", "cubin/plain.cubin", "cubin/spaces.cubin"};

}  // namespace

TEST_CASE("Parameters of Triton's cubins are read with their state space", "[device][cubin]") {
  // axpy(x*, y*, o*, a: f32, n: i32) and softmax(o*, x*, cols: i32), and two scratch pointers each.
  const CubinKernels axpy = read_exactly(read_image("triton/axpy.cubin"));
  REQUIRE(axpy.size() == 1);
  CHECK(axpy.at("axpy") ==
        Parameters{{0, 8, 4}, {8, 8, 4}, {16, 8, 4}, {24, 4, 0}, {28, 4, 0}, {32, 8, 4}, {40, 8, 4}});
  CHECK(kinds_of(axpy.at("axpy")) == std::vector{Kind::pointer, Kind::pointer, Kind::pointer, Kind::value, Kind::value,
                                                 Kind::pointer, Kind::pointer});

  const CubinKernels softmax = read_exactly(read_image("triton/softmax.cubin"));
  REQUIRE(softmax.size() == 1);
  CHECK(softmax.at("softmax") == Parameters{{0, 8, 4}, {8, 8, 4}, {16, 4, 0}, {24, 8, 4}, {32, 8, 4}});
}

TEST_CASE("nvcc's cubins do not tell a pointer from a 64-bit scalar", "[device][cubin]") {
  const CubinKernels kernels = read_exactly(read_image("cubin/plain.cubin"));
  REQUIRE(kernels.size() == 1);
  CHECK(kernels.at("plain") == Parameters{{0, 8, 0}, {8, 8, 0}, {16, 8, 0}, {24, 4, 0}, {32, 16, 0}});
  CHECK(kinds_of(kernels.at("plain")) ==
        std::vector{Kind::unknown, Kind::unknown, Kind::unknown, Kind::value, Kind::value});
}

TEST_CASE("Every state space of PTX marks a pointer", "[device][cubin]") {
  const CubinKernels kernels = read_exactly(read_image("cubin/spaces.cubin"));
  REQUIRE(kernels.size() == 4);
  CHECK(kernels.at("spaces") ==
        Parameters{{0, 8, 4}, {8, 8, 5}, {16, 8, 5}, {24, 8, 0}, {32, 8, 4}, {40, 8, 2}, {48, 24, 0}, {72, 1, 0}});
  CHECK(kinds_of(kernels.at("spaces")) == std::vector{Kind::pointer, Kind::pointer, Kind::pointer, Kind::value,
                                                      Kind::pointer, Kind::pointer, Kind::value, Kind::value});
  CHECK(kinds_of(kernels.at("unmarked")) == std::vector{Kind::unknown, Kind::value});
  CHECK(kernels.at("empty").empty());
}

TEST_CASE("Parameters beyond 16 KiB are read from the second form of record", "[device][cubin]") {
  const CubinKernels kernels = read_exactly(read_image("cubin/spaces.cubin"));
  CHECK(kernels.at("large") == Parameters{{0, 8, 4}, {8, 20000, 0}, {20008, 8, 0}, {20016, 8, 5}});
  CHECK(kinds_of(kernels.at("large")) == std::vector{Kind::pointer, Kind::value, Kind::value, Kind::pointer});
}

TEST_CASE("Kinds stay unknown where the cubin's layout is not the compiled one", "[device][cubin]") {
  const Parameters told{{0, 8, 4}, {8, 4, 0}};
  const auto stays_unknown = [&](auto&& change) {
    CompiledKernel compiled = compiled_as(told);
    change(compiled.parameters);
    const CompiledKernel before = compiled;
    tell_kinds(compiled, told);
    return compiled == before;
  };
  CHECK_FALSE(stays_unknown([](std::vector<Layout>&) {}));
  CHECK(stays_unknown([](std::vector<Layout>& parameters) { parameters[1].offset = 12; }));
  CHECK(stays_unknown([](std::vector<Layout>& parameters) { parameters[1].size = 8; }));
  CHECK(stays_unknown([](std::vector<Layout>& parameters) { parameters.pop_back(); }));
  CHECK(stays_unknown([](std::vector<Layout>& parameters) { parameters.push_back({16, 8}); }));
}

TEST_CASE("An image that is no cubin has no kernels", "[device][cubin]") {
  CHECK(read_cubin({}).empty());
  const std::string text = ".version 7.0 .target sm_80 .visible .entry k(.param .u64 a) { ret; }";
  CHECK(read_exactly(std::as_bytes(std::span(text))).empty());
  REQUIRE(read_exactly(image_of(pointer_record(0, 0))).at("k") == Parameters{{0, 8, 4}});
  const auto refuses = [](auto&& spoil) {
    std::vector<std::byte> image = image_of(pointer_record(0, 0));
    Elf64_Ehdr header;
    std::memcpy(&header, image.data(), sizeof(header));
    spoil(header);
    std::memcpy(image.data(), &header, sizeof(header));
    return read_exactly(image).empty();
  };
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_ident[EI_CLASS] = ELFCLASS32; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_ident[EI_DATA] = ELFDATA2MSB; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_shentsize = 40; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_shoff = ~std::uint64_t{0} - 32; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_shnum = 0xffff; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_shstrndx = 2; }));
  CHECK(refuses([](Elf64_Ehdr& header) { header.e_shstrndx = 1; }));  // Those bytes do not end with a zero.
}

TEST_CASE("A kernel whose records are malformed is left out", "[device][cubin]") {
  const auto reads = [](const std::vector<std::uint8_t>& records) {
    return read_exactly(image_of(records)).contains("k");
  };
  const std::vector<std::uint8_t> good = pointer_record(0, 0);
  CHECK(reads({}));
  CHECK(reads(joined(good, pointer_record(1, 8))));
  CHECK(reads(joined(pointer_record(1, 8), good)));
  CHECK(reads(joined({1, 0x2a, 0, 0}, good)));
  CHECK_FALSE(reads(pointer_record(1, 8)));                     // There is no ordinal 0.
  CHECK_FALSE(reads(joined(good, good)));                       // Two have it.
  CHECK_FALSE(reads({4, 0x17, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}));  // The payload is too short.
  CHECK_FALSE(reads({3, 0x17, 12, 0}));                         // It has another format.
  CHECK_FALSE(reads({4, 0x17, 12, 0, 0, 0}));                   // It passes the section's end.
  CHECK_FALSE(reads(joined({5, 1, 0, 0}, good)));
  CHECK_FALSE(reads(joined({0, 1, 0, 0}, good)));
  CHECK_FALSE(reads(joined(good, {4, 1})));
}

TEST_CASE("A cubin whose sections overlap many times over is given up", "[device][cubin]") {
  std::vector<std::uint8_t> records = pointer_record(0, 0);
  records.resize(1 << 20, 1);  // Records of no payload.
  CHECK(read_exactly(image_of(records)).contains("k"));
  CHECK(read_exactly(image_of(records, 60'000)).empty());
}

TEST_CASE("A cubin cut at any length is read without leaving its bytes", "[device][cubin]") {
  for (const char* name : kImages) {
    const std::vector<std::byte> image = read_image(name);
    const CubinKernels whole = read_exactly(image);
    for (std::size_t size = 0; size < image.size(); ++size) {
      const CubinKernels part = read_exactly(std::span(image).first(size));
      INFO(name << " cut to " << size << " bytes");
      for (const auto& [symbol, parameters] : part) CHECK(whole.at(symbol) == parameters);
    }
  }
}

TEST_CASE("A cubin with flipped bits is read without leaving its bytes", "[device][cubin]") {
  std::mt19937 random(20240607);
  std::size_t kernels = 0;
  for (const char* name : kImages) {
    const std::vector<std::byte> image = read_image(name);
    for (int round = 0; round < 4000; ++round) {
      std::vector<std::byte> changed = image;
      const std::size_t flips = 1 + random() % 8;
      for (std::size_t i = 0; i < flips; ++i) changed[random() % changed.size()] ^= std::byte(1u << random() % 8);
      // Most of what decides stands in the headers.
      if (round % 2 == 0) changed[random() % kHeaderBytes] ^= std::byte(1u << random() % 8);
      kernels += read_exactly(changed).size();
    }
  }
  CHECK(kernels > 0);
}

}  // namespace weft::test
