// See utf8.h.
#include "base/utf8.h"

#include <cstring>

namespace ingot::utf8 {
namespace {

/// Bytes that a lead byte announces, and the range its second byte must lie in.
struct Lead {
  int length;  // 0: not a lead byte
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Step decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 1) return {Status::valid, byte(0), 1};
  if (lead.length == 0) return {Status::invalid, 0, 1};
  const auto length = static_cast<size_t>(lead.length);
  uint32_t code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {Status::cut, 0, i};
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Status::invalid, 0, i};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  return {Status::valid, code, length};
}

size_t valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    while (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) != 0) break;
      at += 8;
    }
    if (at == text.size()) break;
    const Step step = decode(text.substr(at));
    if (step.status != Status::valid) break;
    at += step.length;
  }
  return at;
}

void append(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string repair(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t good = valid_prefix(bytes);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    out.append(kReplacement);
    bytes.remove_prefix(decode(bytes).length);
  }
  return out;
}

}  // namespace ingot::utf8
