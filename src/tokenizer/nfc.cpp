// See nfc.h.
#include "tokenizer/nfc.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"

namespace ingot::nfc {
namespace {

// Hangul syllables compose by arithmetic (Unicode core specification, 3.12).
constexpr uint32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTails = 28;
constexpr uint32_t kFirstDecomposed = 0xC0;

struct Character {
  uint32_t code_point;
  uint8_t combining_class;
};

uint8_t class_of(uint32_t c) {
  const auto table = combining_ranges();
  const auto it = std::upper_bound(table.begin(), table.end(), c,
                                   [](uint32_t code, const CombiningRange& r) { return code < r.begin; });
  return it != table.begin() && c <= std::prev(it)->end ? std::prev(it)->combining_class : uint8_t{0};
}

void decompose(uint32_t c, std::vector<Character>& out) {
  if (c >= kHangul && c < kHangul + kLeads * kVowels * kTails) {
    const uint32_t s = c - kHangul;
    out.push_back({kLead + s / (kVowels * kTails), 0});
    out.push_back({kVowel + s / kTails % kVowels, 0});
    if (s % kTails != 0) out.push_back({kTail + s % kTails, 0});
    return;
  }
  const auto table = decompositions();
  const auto it = std::lower_bound(table.begin(), table.end(), c,
                                   [](const Decomposition& d, uint32_t code) { return d.code_point < code; });
  if (it == table.end() || it->code_point != c) {
    out.push_back({c, class_of(c)});
    return;
  }
  decompose(it->first, out);  // at most four deep
  if (it->second != 0) decompose(it->second, out);
}

const std::unordered_map<uint64_t, uint32_t>& compositions() {
  static const auto map = [] {
    std::unordered_map<uint64_t, uint32_t> m;
    const auto excluded = composition_exclusions();
    for (const Decomposition& d : decompositions())
      if (d.second != 0 && !std::binary_search(excluded.begin(), excluded.end(), d.code_point))
        m.emplace((uint64_t{d.first} << 32) | d.second, d.code_point);
    return m;
  }();
  return map;
}

/// The primary composite of two characters, or 0.
uint32_t compose(uint32_t a, uint32_t b) {
  if (a - kLead < kLeads && b - kVowel < kVowels)
    return kHangul + ((a - kLead) * kVowels + (b - kVowel)) * kTails;
  const bool open_syllable = a - kHangul < kLeads * kVowels * kTails && (a - kHangul) % kTails == 0;
  if (open_syllable && b > kTail && b < kTail + kTails) return a + (b - kTail);
  const auto it = compositions().find((uint64_t{a} << 32) | b);
  return it == compositions().end() ? 0 : it->second;
}

void compose_all(std::vector<Character>& text) {
  size_t out = 0;
  size_t starter = SIZE_MAX;
  for (size_t i = 0; i < text.size(); ++i) {
    const Character c = text[i];
    // Blocked: something between the starter and c has class 0 or a class not below c's.
    const bool adjacent = starter != SIZE_MAX && out == starter + 1;
    const bool blocked =
        starter == SIZE_MAX || (!adjacent && text[out - 1].combining_class >= c.combining_class);
    const uint32_t joined = blocked ? 0 : compose(text[starter].code_point, c.code_point);
    if (joined != 0) {
      text[starter].code_point = joined;
      continue;
    }
    if (c.combining_class == 0) starter = out;
    text[out++] = c;
  }
  text.resize(out);
}

}  // namespace

std::optional<std::string> normalize(std::string_view text) {
  bool affected = false;
  for (const char c : text)
    affected |= static_cast<uint8_t>(c) >= 0xCC;  // below U+0300 (byte 0xCC) all is form C
  if (!affected) return std::nullopt;
  std::vector<Character> characters;
  for (size_t at = 0; at < text.size();) {
    const utf8::Step step = utf8::decode(text.substr(at));
    if (step.code_point < kFirstDecomposed) {
      characters.push_back({step.code_point, 0});
    } else {
      decompose(step.code_point, characters);
    }
    at += step.length;
  }
  for (auto it = characters.begin(); it != characters.end();) {  // canonical order: sort runs of marks
    if (it->combining_class == 0) {
      ++it;
      continue;
    }
    const auto end =
        std::find_if(it, characters.end(), [](const Character& c) { return c.combining_class == 0; });
    std::stable_sort(it, end, [](const Character& a, const Character& b) {
      return a.combining_class < b.combining_class;
    });
    it = end;
  }
  compose_all(characters);
  std::string out;
  out.reserve(text.size());
  for (const Character& c : characters) utf8::append(out, c.code_point);
  return out;
}

}  // namespace ingot::nfc
