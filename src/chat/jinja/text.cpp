// See text.h: runs, characters, and Python's string functions that keep origins.
#include "chat/jinja/text.h"

#include <algorithm>

#include "base/utf8.h"

namespace ingot::chat::jinja {

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), origin});
}

void Text::append(const Text& other, size_t begin, size_t end) {
  end = std::min(end, other.size());
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

void Text::mark_generated() {
  for (Run& r : runs_) r.origin |= kGenerated;
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  if (begin < end) out.append(*this, begin, end);
  out.safe_ = safe_;
  return out;
}

Origin Text::origin_at(size_t byte) const {
  if (runs_.empty()) return 0;
  const auto run =
      std::upper_bound(runs_.begin(), runs_.end(), byte, [](size_t at, const Run& r) { return at < r.end; });
  return run == runs_.end() ? runs_.back().origin : run->origin;
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t character_length(std::string_view text, size_t at, uint32_t* code_point) {
  const utf8::Step step = utf8::decode(text.substr(at));
  const bool valid = step.status == utf8::Status::valid;
  if (code_point != nullptr) *code_point = valid ? step.code_point : 0xFFFD;
  return valid ? step.length : 1;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_length(text, at)) ++count;
  return count;
}

size_t byte_of_character(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_length(text, at);
  return at;
}

Text strip(const Text& text, bool left, bool right, const std::string* characters) {
  const std::string_view s = text.bytes();
  const auto stripped = [&](std::string_view one, uint32_t code_point) {
    if (characters == nullptr) return is_space(code_point);
    for (size_t at = 0; at < characters->size();) {
      const size_t length = character_length(*characters, at);
      if (std::string_view(*characters).substr(at, length) == one) return true;
      at += length;
    }
    return false;
  };
  size_t begin = 0;
  uint32_t c = 0;
  while (left && begin < s.size()) {
    const size_t length = character_length(s, begin, &c);
    if (!stripped(s.substr(begin, length), c)) break;
    begin += length;
  }
  size_t end = s.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<uint8_t>(s[start]) & 0xC0) == 0x80 && end - start < 4) --start;
    if (character_length(s, start, &c) != end - start) {
      start = end - 1;
      c = 0xFFFD;
    }
    if (!stripped(s.substr(start, end - start), c)) break;
    end = start;
  }
  return text.slice(begin, end);
}

Text replace(const Text& text, std::string_view old, const Text& with, int64_t count) {
  Text out;
  const std::string& s = text.bytes();
  size_t from = 0;
  if (old.empty()) {  // Python puts `with` before every character and at the end
    for (; count != 0; --count) {
      out.append(with);
      if (from >= s.size()) return out;
      const size_t length = character_length(s, from);
      out.append(text, from, from + length);
      from += length;
    }
  }
  for (; count != 0; --count) {
    const size_t found = s.find(old, from);
    if (found == std::string::npos) break;
    out.append(text, from, found);
    out.append(with);
    from = found + old.size();
  }
  out.append(text, from, s.size());
  return out;
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t limit, bool from_right) {
  const std::string& s = text.bytes();
  std::vector<Text> out;
  if (from_right) {
    size_t end = s.size();
    for (; limit != 0 && end >= separator.size(); --limit) {
      const size_t found = s.rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      out.push_back(text.slice(found + separator.size(), end));
      end = found;
    }
    out.push_back(text.slice(0, end));
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t from = 0;
  for (; limit != 0; --limit) {
    const size_t found = s.find(separator, from);
    if (found == std::string::npos) break;
    out.push_back(text.slice(from, found));
    from = found + separator.size();
  }
  out.push_back(text.slice(from, s.size()));
  return out;
}

std::vector<Text> split_at_space(const Text& text, int64_t limit, bool from_right) {
  std::vector<Text> out;
  Text rest = strip(text, true, true);
  const auto space_at = [](const std::string& s, size_t at) {
    uint32_t c = 0;
    character_length(s, at, &c);
    return is_space(c);
  };
  for (; rest.size() > 0; --limit) {
    const std::string& s = rest.bytes();
    size_t cut = std::string::npos;
    for (size_t at = 0; at < s.size(); at += character_length(s, at))
      if (space_at(s, at)) {
        cut = at;
        if (!from_right) break;
      }
    if (limit == 0 || cut == std::string::npos) {
      out.push_back(rest);
      break;
    }
    const size_t after = cut + character_length(s, cut);
    out.push_back(from_right ? rest.slice(after, s.size()) : rest.slice(0, cut));
    rest =
        from_right ? strip(rest.slice(0, cut), false, true) : strip(rest.slice(cut, s.size()), true, false);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> out;
  const std::string& s = text.bytes();
  size_t from = 0;
  for (size_t at = 0; at < s.size();) {
    uint32_t c = 0;
    size_t length = character_length(s, at, &c);
    const bool ends =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && at + 1 < s.size() && s[at + 1] == '\n') length = 2;
    at += length;
    if (!ends) continue;
    out.push_back(text.slice(from, keep_ends ? at : at - length));
    from = at;
  }
  if (from < s.size()) out.push_back(text.slice(from, s.size()));
  return out;
}

namespace {

/// Letters whose other case is at a fixed distance, or the next number: Latin, Greek, Cyrillic, Armenian.
uint32_t other_case(uint32_t c, bool upper) {
  struct Range {
    uint32_t first, last, distance;  // lower case = upper case + distance
  };
  static constexpr Range kRanges[] = {{'A', 'Z', 32},     {0xC0, 0xD6, 32},   {0xD8, 0xDE, 32},
                                      {0x391, 0x3A1, 32}, {0x3A3, 0x3AB, 32}, {0x410, 0x42F, 32},
                                      {0x400, 0x40F, 80}, {0x531, 0x556, 48}, {0x388, 0x38A, 37},
                                      {0x386, 0x386, 38}, {0x38C, 0x38C, 64}, {0x38E, 0x38F, 63}};
  for (const Range& r : kRanges) {
    if (!upper && c >= r.first && c <= r.last) return c + r.distance;
    if (upper && c >= r.first + r.distance && c <= r.last + r.distance && c != 0x3C2) return c - r.distance;
  }
  if (upper && c == 0x3C2) return 0x3A3;
  if (upper && c == 0xFF) return 0x178;
  if (!upper && c == 0x178) return 0xFF;
  const bool even_upper = (c >= 0x100 && c <= 0x12F) || (c >= 0x132 && c <= 0x137) ||
                          (c >= 0x14A && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
                          (c >= 0x48A && c <= 0x4BF) || (c >= 0x4D0 && c <= 0x52F) ||
                          (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
  const bool odd_upper = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
  if ((even_upper && c % 2 == 0) || (odd_upper && c % 2 == 1)) return upper ? c : c + 1;
  if (even_upper || odd_upper) return upper ? c - 1 : c;
  return c;
}

bool has_case(uint32_t c) {
  return other_case(c, true) != c || other_case(c, false) != c;
}

}  // namespace

Text with_case(const Text& text, LetterCase how) {
  Text out;
  const std::string& s = text.bytes();
  bool first = true;  // of the word, or of the text
  for (size_t at = 0; at < s.size();) {
    uint32_t c = 0;
    const size_t length = character_length(s, at, &c);
    std::string one = s.substr(at, length);
    bool upper =
        how == LetterCase::upper || (first && (how == LetterCase::title || how == LetterCase::capital));
    if (how == LetterCase::swapped) upper = other_case(c, false) == c;
    std::string changed;
    if (c == 0xDF && upper)
      changed = how == LetterCase::upper || how == LetterCase::swapped ? "SS" : "Ss";
    else if (other_case(c, upper) != c)
      utf8::append(changed, other_case(c, upper));
    else
      changed = std::move(one);
    first = how == LetterCase::title ? !has_case(c) : false;
    out.append(changed, text.origin_at(at));
    at += length;
  }
  return out;
}

Text escape_html(const Text& text) {
  Text out;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string_view one = std::string_view(text.bytes()).substr(at, 1);
    if (one == "&") one = "&amp;";
    if (one == "<") one = "&lt;";
    if (one == ">") one = "&gt;";
    if (one == "\"") one = "&#34;";
    if (one == "'") one = "&#39;";
    out.append(one, text.origin_at(at));
  }
  out.set_safe();
  return out;
}

}  // namespace ingot::chat::jinja
