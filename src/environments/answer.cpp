// See answer.h.
#include "environments/answer.h"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cctype>

namespace ingot::environments {
namespace {

using Whole = boost::multiprecision::cpp_int;

constexpr size_t kLongestContent = 10'000, kMostDigits = 200;

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string collapsed(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_space(c))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (out.size() > 1 && out.back() == '.') out.pop_back();
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

/// What the markers of one kind enclose.
struct Marked {
  std::vector<std::string> found;
  bool open = false;  ///< one is not closed
};

Marked boxes(std::string_view text) {
  Marked m;
  constexpr std::string_view kBox = "\\boxed{";
  for (size_t at = text.find(kBox); at != text.npos; at = text.find(kBox, at)) {
    const size_t begin = at + kBox.size();
    int64_t depth = 1;
    for (at = begin; at < text.size() && depth > 0; ++at)
      depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
    if (depth > 0) return m.open = true, m;
    m.found.push_back(collapsed(text.substr(begin, at - 1 - begin)));
  }
  return m;
}

/// Between `open` and `close`, or to the end of the line where `close` is empty.
Marked marked(std::string_view text, std::string_view folded, std::string_view open, std::string_view close) {
  Marked m;
  for (size_t at = folded.find(open); at != folded.npos; at = folded.find(open, at)) {
    const size_t begin = at + open.size(), end = folded.find(close.empty() ? "\n" : close, begin);
    if (end == folded.npos && !close.empty()) return m.open = true, m;
    m.found.push_back(collapsed(text.substr(begin, end == folded.npos ? end : end - begin)));
    at = begin;
  }
  return m;
}

FinalAnswer answer_of(const Marked& m, const char* what) {
  if (m.open) return {"", std::string(what) + " is not closed"};
  for (const std::string& one : m.found)
    if (one != m.found.front()) return {"", std::string("two answers that differ: ") + what};
  if (m.found.front().empty()) return {"", std::string(what) + " is empty"};
  return {m.found.front(), ""};
}

/// Digits with an optional fraction behind a point, and commas where thousands begin.
bool read_decimal(std::string_view& text, Whole& numerator, Whole& denominator) {
  std::string whole, fraction;
  size_t at = 0;
  while (at < text.size() && is_digit(text[at])) whole += text[at++];
  const size_t first = at;
  while (first <= 3 && first > 0 && text.size() >= at + 4 && text[at] == ',' && is_digit(text[at + 1]) &&
         is_digit(text[at + 2]) && is_digit(text[at + 3]) &&
         !(text.size() > at + 4 && is_digit(text[at + 4])))
    whole += text.substr(at + 1, 3), at += 4;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1]))
    for (++at; at < text.size() && is_digit(text[at]);) fraction += text[at++];
  if ((whole.empty() && fraction.empty()) || whole.size() + fraction.size() > kMostDigits) return false;
  text.remove_prefix(at);
  // A digit string that begins with 0 would be read as octal.
  std::string digits = whole + fraction;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  numerator = Whole(digits),
  denominator = boost::multiprecision::pow(Whole(10), static_cast<unsigned>(fraction.size()));
  return true;
}

void skip_spaces(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
}
bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool read_fraction(std::string_view& text, Whole& p, Whole& q) {
  Whole a, b, c, d;
  if (skip(text, "\\frac{") || skip(text, "\\dfrac{") || skip(text, "\\tfrac{")) {
    const bool minus = skip(text, "-");
    if (!read_decimal(text, a, b) || !skip(text, "}{") || !read_decimal(text, c, d) || !skip(text, "}"))
      return false;
    p = a * d * (minus ? -1 : 1), q = b * c;
    return true;
  }
  if (!read_decimal(text, a, b)) return false;
  p = a, q = b;
  if (skip(text, "/")) {
    if (!read_decimal(text, c, d)) return false;
    p = a * d, q = b * c;
    return true;
  }
  std::string_view rest = text;
  if (b == 1 && skip(rest, " ") && !rest.empty() && is_digit(rest.front())) {  // 1 1/2
    if (!read_decimal(rest, c, d) || !skip(rest, "/") || d != 1) return false;
    Whole e, f;
    if (!read_decimal(rest, e, f) || f != 1) return false;
    p = a * e + c, q = e, text = rest;
  }
  return true;
}

bool is_unit(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) {
                       return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == ' ' || c == '/' ||
                              c == '.';
                     }) &&
         (text.empty() || std::isalpha(static_cast<unsigned char>(text.front())) != 0);
}

}  // namespace

FinalAnswer final_answer(std::string_view content) {
  if (content.size() > kLongestContent) return {"", "the answer has more than 10,000 bytes"};
  if (const Marked m = boxes(content); m.open || !m.found.empty()) return answer_of(m, "\\boxed{}");
  const std::string folded = lower(content);
  if (const Marked m = marked(content, folded, "####", ""); !m.found.empty()) return answer_of(m, "####");
  if (const Marked m = marked(content, folded, "<answer>", "</answer>"); m.open || !m.found.empty())
    return answer_of(m, "<answer>");
  if (const Marked m = marked(content, folded, "answer:", ""); !m.found.empty())
    return answer_of(m, "answer:");
  std::string text = collapsed(content);
  size_t begin = 0, end = content.size();
  while (begin < end && is_space(content[begin])) ++begin;
  while (end > begin && is_space(content[end - 1])) --end;
  if (text.empty()) return {"", "the reply has no answer"};
  if (content.substr(begin, end - begin).find('\n') != content.npos)
    return {"", "the reply has several lines and marks none as its answer"};
  return {std::move(text), ""};
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    if (is_space(c) || c == ',') {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true, words.back() += c;
  }
  return words;
}

std::optional<std::string> integer_of(std::string_view text) {
  const bool minus = skip(text, "-");
  if (text.empty() || text.size() > kMostDigits || !std::all_of(text.begin(), text.end(), is_digit))
    return {};
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size() - 1));
  return (minus && text != "0" ? "-" : "") + std::string(text);
}

std::optional<std::string> number_of(std::string_view text) {
  skip_spaces(text);
  skip(text, "$"), skip(text, "\\$");
  bool minus = skip(text, "-");
  if (!minus) skip(text, "+");
  skip(text, "$"), skip(text, "\\$");
  Whole p, q;
  if (!read_fraction(text, p, q) || q == 0) return {};
  skip_spaces(text);
  if (skip(text, "%") || skip(text, "\\%") || skip(text, "percent")) q *= 100;
  skip(text, "$");
  skip_spaces(text);
  if (!is_unit(text)) return {};
  const Whole common = gcd(p, q);
  if (minus) p = -p;
  return Whole(p / common).str() + "/" + Whole(q / common).str();
}

}  // namespace ingot::environments
