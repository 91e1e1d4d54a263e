#include "catch.h"
#include <weft/safetensors.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

using weft::DType;
using weft::Error;
using weft::ErrorCode;
using weft::Safetensors;
using weft::Shape;
using weft::test::contains;
using weft::test::refusal;

/// A file that goes with the object.
class TemporaryFile {
 public:
  TemporaryFile() {
    static int made = 0;
    const std::string name = "weft_safetensors_" + std::to_string(::getpid()) + "_" + std::to_string(made++);
    path_ = std::filesystem::temp_directory_path() / name;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  const TemporaryFile& write(std::string_view content) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    REQUIRE(file.good());
    return *this;
  }

 private:
  std::filesystem::path path_;
};

std::string with_length(std::uint64_t length, std::string_view rest) {
  std::string content(sizeof(length), '\0');
  std::memcpy(content.data(), &length, sizeof(length));
  return content.append(rest);
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return with_length(header.size(), header).append(data_bytes, '\x5a');
}

Error refusal_of(std::string_view content) {
  const TemporaryFile file;
  file.write(content);
  return refusal([&] { (void)Safetensors::open(file.path()); });
}

std::vector<float> floats(const weft::HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

unsigned checksum(const Safetensors& file) {
  unsigned sum = 0;
  for (const std::string& name : file.names()) {
    try {
      const weft::HostTensor tensor = file.tensor(name);
      REQUIRE(tensor.bytes.size() == tensor.desc.bytes());
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
    } catch (const Error& error) {
      REQUIRE(error.code() == ErrorCode::io);  // An element type that weft does not have.
    }
  }
  return sum;
}

constexpr std::string_view kSmallHeader =
    R"({"__metadata__":{"k":"v"},"a":{"dtype":"I32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

TEST_CASE("The digits model opens with its layers", "[edges][safetensors]") {
  const auto file = Safetensors::open(std::filesystem::path(WEFT_TEST_DATA) / "digits.safetensors");
  CHECK(file.names() ==
        std::vector<std::string>{"fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight", "fc3.bias", "fc3.weight"});
  CHECK(file.metadata().at("architecture") == "mlp 64-128-64-10 relu");

  const weft::HostTensor weight = file.tensor("fc1.weight");
  CHECK(weight.label == "fc1.weight");
  CHECK(weight.desc == weft::TensorDesc(DType::f32, {128, 64}));
  REQUIRE(weight.bytes.size() == 32768);
  const std::vector<float> values = floats(weight);
  CHECK(std::ranges::all_of(values, [](float value) { return value > -10 && value < 10; }));
  CHECK(std::ranges::any_of(values, [](float value) { return value != 0; }));
}

TEST_CASE("The digits test set holds images and labels and logits", "[edges][safetensors]") {
  const auto file = Safetensors::open(std::filesystem::path(WEFT_TEST_DATA) / "digits_test.safetensors");
  CHECK(file.metadata().empty());
  const auto images = floats(file.tensor("images"));
  REQUIRE(images.size() == 500 * 64);
  CHECK(std::ranges::all_of(images, [](float pixel) { return pixel >= 0 && pixel <= 1; }));
  const weft::HostTensor labels = file.tensor("labels");
  CHECK(labels.desc == weft::TensorDesc(DType::i32, {500}));
  CHECK(file.tensor("logits").desc.shape() == Shape{500, 10});

  // The stored logits name the digit that the labels name, 495 times.
  const auto logits = floats(file.tensor("logits"));
  std::vector<std::int32_t> digits(500);
  std::memcpy(digits.data(), labels.bytes.data(), labels.bytes.size());
  int right = 0;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * 10);
    right += std::max_element(row, row + 10) - row == digits[i] ? 1 : 0;
  }
  CHECK(right == 495);
}

TEST_CASE("Bytes live as long as a copy of the handle", "[edges][safetensors]") {
  const TemporaryFile temporary;
  temporary.write(file_of(kSmallHeader, 11));
  std::optional<Safetensors> first = Safetensors::open(temporary.path());
  const weft::HostTensor tensor = first->tensor("b");
  const Safetensors second = *first;
  first.reset();
  std::filesystem::remove(temporary.path());
  CHECK(tensor.bytes[2] == std::byte{0x5a});
  CHECK(second.tensor("b").bytes.data() == tensor.bytes.data());
}

TEST_CASE("A handle that was moved from still reads its file", "[edges][safetensors]") {
  const TemporaryFile temporary;
  temporary.write(file_of(kSmallHeader, 11));
  Safetensors file = Safetensors::open(temporary.path());
  const Safetensors taken = std::move(file);
  CHECK(file.names() == taken.names());  // NOLINT(bugprone-use-after-move): what is tested.
}

TEST_CASE("Every element type of weft is read", "[edges][safetensors]") {
  const std::map<std::string, DType> types = {{"U8", DType::u8},     {"I8", DType::i8},   {"I32", DType::i32},
                                              {"U32", DType::u32},   {"I64", DType::i64}, {"F16", DType::f16},
                                              {"BF16", DType::bf16}, {"F32", DType::f32}, {"F64", DType::f64}};
  for (const auto& [name, dtype] : types) {
    INFO(name);
    const std::uint64_t bytes = 6 * weft::size_of(dtype);
    const TemporaryFile temporary;
    temporary.write(file_of(
        R"({"t":{"dtype":")" + name + R"(","shape":[2,3],"data_offsets":[0,)" + std::to_string(bytes) + "]}}", bytes));
    CHECK(Safetensors::open(temporary.path()).tensor("t").desc == weft::TensorDesc(dtype, {2, 3}));
  }
}

TEST_CASE("Scalars and empty tensors and files without tensors open", "[edges][safetensors]") {
  const TemporaryFile temporary;
  temporary.write(file_of("{}", 0));
  CHECK(Safetensors::open(temporary.path()).names().empty());

  // Padding after the header is part of the format.
  temporary.write(file_of(
      R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0,18446744073709551615,4],"data_offsets":[8,8]}}   )",
      8));
  const auto file = Safetensors::open(temporary.path());
  CHECK(file.tensor("s").desc.count() == 1);
  CHECK(file.tensor("e").desc.is_empty());
  CHECK(file.tensor("e").bytes.empty());
}

TEST_CASE("A missing tensor is refused with the names beside it", "[edges][safetensors]") {
  const auto file = Safetensors::open(std::filesystem::path(WEFT_TEST_DATA) / "digits.safetensors");
  const auto sentence = [&](std::string_view name) {
    const Error error = refusal([&] { (void)file.tensor(name); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(
      contains(sentence("fc2.wait"),
               R"(digits.safetensors" has no tensor "fc2.wait"; it has 6, the nearest "fc2.bias" and "fc2.weight".)"));
  CHECK(contains(sentence("a"), R"(the nearest "fc1.bias".)"));
  CHECK(contains(sentence("z"), R"(the nearest "fc3.weight".)"));
  CHECK(sentence(std::string(1 << 20, 'q')).size() < 1000);
}

TEST_CASE("A tensor of an element type that weft does not have is refused when it is asked for",
          "[edges][safetensors]") {
  for (const std::string type : {"BOOL", "Q7_K"}) {
    INFO(type);
    const TemporaryFile temporary;
    temporary.write(
        file_of(R"({"t":{"dtype":")" + type +
                    R"(","shape":[4],"data_offsets":[0,4]},"u":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                8));
    const auto file = Safetensors::open(temporary.path());
    CHECK(file.names() == std::vector<std::string>{"t", "u"});
    CHECK(file.tensor("u").bytes.size() == 4);
    const Error error = refusal([&] { (void)file.tensor("t"); });
    CHECK(error.code() == ErrorCode::io);
    CHECK(contains(error.sentence(), "has the element type \"" + type + "\", which weft does not have."));
  }
}

TEST_CASE("A path that is no regular file is refused", "[edges][safetensors]") {
  const Error missing = refusal([] { (void)Safetensors::open("/nonexistent/digits.safetensors"); });
  CHECK(missing.code() == ErrorCode::io);
  CHECK(std::string(missing.what()) ==
        "While opening the safetensors file \"/nonexistent/digits.safetensors\": The file cannot be opened: No such "
        "file or directory.");
  const Error folder = refusal([] { (void)Safetensors::open(std::filesystem::temp_directory_path()); });
  CHECK(folder.code() == ErrorCode::io);
  CHECK(folder.sentence() == "The path does not name a regular file.");
}

TEST_CASE("Lengths that the file or the format does not allow are refused", "[edges][safetensors]") {
  CHECK(refusal_of("").sentence() == "The file has 0 bytes; its header's length alone takes 8.");
  CHECK(refusal_of("1234567").sentence() == "The file has 7 bytes; its header's length alone takes 8.");
  CHECK(refusal_of(with_length(3, "{}")).sentence() ==
        "The header has 3 bytes, and 2 bytes of the file follow its length.");
  CHECK(refusal_of(with_length(100'000'000, "{}")).sentence() ==
        "The header has 100000000 bytes, and 2 bytes of the file follow its length.");
  CHECK(refusal_of(with_length(100'000'001, "{}")).sentence() ==
        "The header has 100000001 bytes; the limit is 100000000.");
  CHECK(refusal_of(with_length(~std::uint64_t{0}, "{}")).sentence() ==
        "The header has 18446744073709551615 bytes; the limit is 100000000.");
  CHECK(refusal_of(with_length(0, "{}")).sentence() == "The header does not begin with '{'.");
}

TEST_CASE("Headers that break the format are refused", "[edges][safetensors]") {
  struct Row {
    std::string header;
    std::size_t data_bytes;
    std::string what;
  };
  const auto tensor = [](std::string_view fields) { return R"({"t":{)" + std::string(fields) + "}}"; };
  const std::vector<Row> rows = {
      {"[]", 0, "The header does not begin with '{'."},
      {" {}", 0, "The header does not begin with '{'."},
      {"{", 0, "The header is not JSON: the parser stops at byte"},
      {"{} x", 0, "The header is not JSON: the parser stops at byte"},
      {"{\"\xff\":1}", 0, "The header is not JSON: the parser stops at byte"},
      {R"({"t":1e999})", 0, "The header is not JSON that can be read:"},
      {R"({"t":{"shape":[[1]]}})", 0, "The header nests deeper than 3 levels."},
      {R"({"t":1})", 0, "The tensor is not described by an object."},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, R"(The header repeats the key "a".)"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, R"(The header repeats the key "a".)"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, R"(The header repeats the key "k".)"},
      {tensor(R"("dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1])"), 1,
       R"(The header repeats the key "dtype".)"},
      {R"({"__metadata__":["k"]})", 0, R"(The field "__metadata__" is not an object.)"},
      {R"({"__metadata__":{"k":1}})", 0, R"(The field "k" of "__metadata__" is not a string.)"},
      {tensor(R"("shape":[1],"data_offsets":[0,1])"), 1, R"(The field "dtype" is missing.)"},
      {tensor(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), 1, R"(The field "dtype" is not a string.)"},
      {tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1, R"(The field "shape" is missing.)"},
      {tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1, R"(The field "shape" is not a list.)"},
      {tensor(R"("dtype":"U8","shape":[1,-1],"data_offsets":[0,1])"), 1,
       R"(The field "shape" holds "-1" at position 1, which is not a whole number)"},
      {tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), 1,
       R"(The field "shape" holds "1.0" at position 0)"},
      {tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"), 1,
       "which is not a whole number from 0 to 18446744073709551615."},
      {tensor(R"("dtype":"U8","shape":[1])"), 1, R"(The field "data_offsets" is missing.)"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), 1,
       R"(The field "data_offsets" holds 3 numbers; it needs 2.)"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1,
       "The data ends at byte 0, before it begins at byte 1."},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])"), 1,
       "The data ends at byte 2; the file holds 1 bytes of data."},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
       R"(The field "data_offsets" gives 4 bytes; the shape takes 8 as F32.)"},
      {tensor(R"("dtype":"BOOL","shape":[2],"data_offsets":[0,4])"), 4,
       R"(The field "data_offsets" gives 4 bytes; the shape takes 2 as BOOL.)"},
      {tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0,
       "The shape with elements of 4 bytes takes 2^64 bytes or more."},
      {tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
       "The shape with elements of 1 bytes takes 2^64 bytes or more."},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1])"), 1,
       R"(The field "strides" is not one of "dtype", "shape" and "data_offsets".)"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       4, R"(The tensors "a" and "b" overlap: the second begins at byte 2, before the first ends at byte 3.)"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
       3, R"(The tensors "a" and "b" overlap)"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
       4, R"(The bytes 1 to 3 of the data, before the tensor "b", belong to no tensor.)"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
       R"(The bytes 0 to 1 of the data, before the tensor "t", belong to no tensor.)"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 3,
       "The bytes 1 to 3 at the end of the data belong to no tensor."},
      {"{}", 1, "The bytes 0 to 1 at the end of the data belong to no tensor."},
  };
  for (const Row& row : rows) {
    INFO(row.header);
    const Error error = refusal_of(file_of(row.header, row.data_bytes));
    CHECK(error.code() == ErrorCode::io);
    INFO(error.what());
    CHECK(contains(error.sentence(), row.what));
    CHECK(contains(error.what(), "While opening the safetensors file \""));
  }
}

TEST_CASE("A refusal names the tensor and clips what a file can make long", "[edges][safetensors]") {
  CHECK(contains(refusal_of(file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1)).what(),
                 "while reading the tensor \"w\": "));
  const std::string name(1 << 20, 'n');
  const Error error = refusal_of(file_of("{\"" + name + "\":1}", 0));
  CHECK(std::string_view(error.what()).size() < 1000);
  CHECK(contains(error.what(), "nnn\"..."));
}

TEST_CASE("Nesting without end is refused before it is stored", "[edges][safetensors]") {
  CHECK(refusal_of(file_of(std::string(R"({"t":)") + std::string(1 << 20, '['), 0)).sentence() ==
        "The header nests deeper than 3 levels.");
}

TEST_CASE("A file cut short or grown at any length is refused", "[edges][safetensors]") {
  const std::string whole = file_of(kSmallHeader, 11);
  const TemporaryFile temporary;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    temporary.write(std::string_view(whole).substr(0, size));
    CHECK(refusal([&] { (void)Safetensors::open(temporary.path()); }).code() == ErrorCode::io);
  }
  CHECK(refusal_of(whole + '\0').code() == ErrorCode::io);
  temporary.write(whole);
  CHECK(checksum(Safetensors::open(temporary.path())) == 11 * 0x5a);
}

TEST_CASE("A file with any byte of its header changed opens within bounds or is refused", "[edges][safetensors]") {
  const std::string whole = file_of(kSmallHeader, 11);
  const TemporaryFile temporary;
  temporary.write(whole);
  std::fstream stream(temporary.path(), std::ios::binary | std::ios::in | std::ios::out);
  int opened = 0;
  int refused = 0;
  for (std::size_t position = 0; position < whole.size() - 11; ++position) {
    for (int change = 1; change < 256; ++change) {
      const auto byte = static_cast<char>(static_cast<unsigned char>(whole[position]) ^ change);
      stream.seekp(static_cast<std::streamoff>(position)).put(byte).flush();
      INFO("byte " << position << " is " << static_cast<int>(static_cast<unsigned char>(byte)));
      try {
        const unsigned sum = checksum(Safetensors::open(temporary.path()));
        ++opened;
        REQUIRE(sum <= 11 * 0x5a);
      } catch (const Error& error) {
        ++refused;
        REQUIRE(error.code() == ErrorCode::io);
      }
    }
    stream.seekp(static_cast<std::streamoff>(position)).put(whole[position]).flush();
  }
  REQUIRE(stream.good());
  CHECK(opened > 500);  // Other names and other metadata are as good.
  CHECK(refused > 10'000);
}

}  // namespace
