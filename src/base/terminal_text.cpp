// See terminal_text.h.
#include "base/terminal_text.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/utf8.h"

namespace ingot {
namespace {

bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const utf8::Step step = utf8::decode(rest);
    at += step.length;
    if (step.status != utf8::Status::valid) {
      for (const char byte : rest.substr(0, step.length))
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else if (!is_control(step.code_point) || rest[0] == '\n' || rest[0] == '\t' ||
               rest.starts_with("\r\n")) {
      out += rest.substr(0, step.length);
    } else {
      out += step.code_point < 0x80 ? fmt::format("\\x{:02x}", step.code_point)
                                    : fmt::format("\\u{{{:x}}}", step.code_point);
    }
  }
  return out;
}

std::string text_for(int file_descriptor, std::string_view text) {
  return ::isatty(file_descriptor) == 1 ? terminal_text(text) : std::string(text);
}

}  // namespace ingot
