// See byte_level.h.
#include "tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace ingot::byte_level {
namespace {

constexpr uint32_t kStandIns = 68;

struct Tables {
  std::array<uint32_t, 256> code_point{};
  std::array<int, 256 + kStandIns> byte{};
};

constexpr Tables make_tables() {
  Tables t;
  t.byte.fill(-1);
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    t.code_point[b] = itself ? b : next++;
    t.byte[t.code_point[b]] = static_cast<int>(b);
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t code_point_of(uint8_t byte) {
  return kTables.code_point[byte];
}

int byte_of(uint32_t code_point) {
  return code_point < kTables.byte.size() ? kTables.byte[code_point] : -1;
}

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) utf8::append(out, code_point_of(static_cast<uint8_t>(c)));
  return out;
}

std::optional<std::string> from_alphabet(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const utf8::Step step = utf8::decode(token);
    const int byte = step.status == utf8::Status::valid ? byte_of(step.code_point) : -1;
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    token.remove_prefix(step.length);
  }
  return out;
}

}  // namespace ingot::byte_level
