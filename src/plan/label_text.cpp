#include "plan/label_text.h"

#include <spdlog/fmt/fmt.h>

#include <cstddef>

namespace weft {
namespace {

unsigned char byte_at(std::string_view text, std::size_t position) {
  return static_cast<unsigned char>(text[position]);
}

/// Bytes of the well-formed multi-byte UTF-8 character that `text` begins with, 0 if there is none (Unicode 15, table
/// 3-7).
std::size_t utf8_length(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  std::size_t length = 0;
  unsigned char lowest = 0x80;
  unsigned char highest = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) lowest = 0xA0;
    if (lead == 0xED) highest = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) lowest = 0x90;
    if (lead == 0xF4) highest = 0x8F;
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte_at(text, 1) < lowest || byte_at(text, 1) > highest) return 0;
  for (std::size_t next = 2; next < length; ++next) {
    if (byte_at(text, next) < 0x80 || byte_at(text, next) > 0xBF) return 0;
  }
  return length;
}

}  // namespace

std::string escaped_label(std::string_view label) {
  std::string out;
  while (!label.empty()) {
    const char c = label.front();
    std::size_t taken = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte_at(label, 0) >= 0x20 && byte_at(label, 0) < 0x7F) {
      out += c;
    } else if (const std::size_t length = utf8_length(label); length != 0) {
      out += label.substr(0, length);
      taken = length;
    } else {
      out += fmt::format("\\x{:02X}", byte_at(label, 0));
    }
    label.remove_prefix(taken);
  }
  return out;
}

std::string quoted_label(std::string_view label) { return '"' + escaped_label(label) + '"'; }

std::string dot_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace weft
