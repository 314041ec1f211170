// See builtins.h: "%s of %d" % (a, b) and "{} of {name}".format(a, name=b).
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

/// One conversion: %[(key)][flags][width][.precision]letter.
struct Conversion {
  std::string key, flags;
  int width = 0, precision = -1;
  char letter = '\0';
};

int small_number(const std::string& s, size_t& at) {
  int n = 0;
  for (; at < s.size() && digit(s[at]); ++at) {
    n = n * 10 + (s[at] - '0');
    if (n > 10000) throw Fault{"a width of a format is above 10000", {}};
  }
  return n;
}

Conversion read_conversion(const std::string& s, size_t& at) {
  Conversion c;
  if (at < s.size() && s[at] == '(') {
    const size_t end = s.find(')', at);
    if (end == std::string::npos) throw Fault{"a format's '%(' has no ')'", {}};
    c.key = s.substr(at + 1, end - at - 1);
    at = end + 1;
  }
  while (at < s.size() && std::string_view("-+ 0#").find(s[at]) != std::string_view::npos) c.flags += s[at++];
  c.width = small_number(s, at);
  if (at < s.size() && s[at] == '.') c.precision = small_number(s, ++at);
  if (at >= s.size()) throw Fault{"a format ends inside of '%'", {}};
  c.letter = s[at++];
  return c;
}

Text padded(Text text, const Conversion& c) {
  const auto has = [&](char f) { return c.flags.find(f) != std::string::npos; };
  const auto n = static_cast<int>(count_characters(text.bytes()));
  if (n >= c.width) return text;
  const bool zeros = has('0') && !has('-') && c.letter != 's' && c.letter != 'r';
  const size_t sign = zeros && (text.bytes().starts_with('-') || text.bytes().starts_with('+')) ? 1 : 0;
  const std::string pad(static_cast<size_t>(c.width - n), zeros ? '0' : ' ');
  Text out;
  if (has('-')) {
    out = text;
    out.append(pad, 0);
    return out;
  }
  out.append(text, 0, sign);
  out.append(pad, 0);
  out.append(text, sign, text.size());
  return out;
}

Text convert(const Conversion& c, const Value& v) {
  const std::string plus = c.flags.find('+') != std::string::npos   ? "+"
                           : c.flags.find(' ') != std::string::npos ? " "
                                                                    : "";
  if (c.letter == 's' || c.letter == 'r') {
    Text t = c.letter == 's' ? v.str() : v.repr();
    if (c.precision >= 0) t = t.slice(0, byte_of_character(t.bytes(), static_cast<size_t>(c.precision)));
    return padded(t, c);
  }
  if (std::string_view("dixXofFeEgG").find(c.letter) == std::string_view::npos)
    throw Fault{fmt::format("the format '%{}' is not supported", c.letter),
                "formats: %s %r %d %i %x %o %f %e %g %%"};
  if (!v.is_number()) throw Fault{fmt::format("'%{}' needs a number, found {}", c.letter, v.type_name()), {}};
  std::string s;
  if (c.letter == 'd' || c.letter == 'i') {
    s = v.kind() == Kind::number ? fmt::format("{:.0f}", std::trunc(v.as_number()))
                                 : std::to_string(v.as_integer());
  } else if (c.letter == 'x' || c.letter == 'X' || c.letter == 'o') {
    if (v.kind() == Kind::number)
      throw Fault{fmt::format("'%{}' needs an integer, found float", c.letter), {}};
    const int64_t i = v.as_integer();
    const uint64_t u = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
    s = (i < 0 ? "-" : "") + (c.letter == 'x'   ? fmt::format("{:x}", u)
                              : c.letter == 'X' ? fmt::format("{:X}", u)
                                                : fmt::format("{:o}", u));
  } else {
    s = fmt::format(fmt::runtime(std::string("{:.{}") + c.letter + "}"), v.as_number(),
                    c.precision >= 0 ? c.precision : 6);
  }
  if (!s.starts_with('-')) s = plus + s;
  return padded(Text(s, v.origin()), c);
}

}  // namespace

Text format_percent(const Text& format, const Value& arguments) {
  Text out;
  const std::string& s = format.bytes();
  size_t next = 0;
  bool keyed = false;
  const bool many = arguments.kind() == Kind::tuple;
  const size_t count = many ? arguments.as_list().size() : 1;
  for (size_t at = 0; at < s.size();) {
    const size_t percent = std::min(s.find('%', at), s.size());
    out.append(format, at, percent);
    if (percent == s.size()) break;
    at = percent + 1;
    const Conversion c = read_conversion(s, at);
    if (c.letter == '%') {
      out.append("%", format.origin_at(percent));
      continue;
    }
    if (!c.key.empty()) {
      keyed = true;
      if (!arguments.is_dict()) throw Fault{"a format with '%(' needs a dict", {}};
      const Value* v = arguments.as_dict().find(c.key);
      if (v == nullptr) throw Fault{fmt::format("the format's value '{}' is missing", c.key), {}};
      out.append(convert(c, *v));
      continue;
    }
    if (next >= count) throw Fault{"a format has more places than values", {}};
    out.append(convert(c, many ? arguments.as_list()[next] : arguments));
    ++next;
  }
  if (next < count && !keyed && !arguments.is_dict())
    throw Fault{"a format has fewer places than values", {}};
  return out;
}

Text format_braces(const Text& format, Arguments& a) {
  Text out;
  const std::string& s = format.bytes();
  size_t next = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t brace = std::min(s.find_first_of("{}", at), s.size());
    out.append(format, at, brace);
    if (brace == s.size()) break;
    at = brace + 1;
    if (at < s.size() && s[at] == s[brace]) {
      out.append(format, brace, brace + 1);
      ++at;
      continue;
    }
    const size_t end = s.find('}', at);
    if (s[brace] == '}' || end == std::string::npos) throw Fault{"a single brace stands in a format", {}};
    const std::string field = s.substr(at, end - at);
    at = end + 1;
    if (field.find_first_of(":!.[") != std::string::npos)
      throw Fault{
          fmt::format("the format '{{{}}}' is not supported: only {{}}, {{0}} and {{name}} are", field), {}};
    const bool number = !field.empty() && field.size() < 5 && std::all_of(field.begin(), field.end(), digit);
    const size_t index = field.empty() ? next++ : number ? std::stoul(field) : a.positional.size();
    const Value* v = a.find(index, field);
    if (v == nullptr) throw Fault{fmt::format("the format's value '{}' is missing", field), {}};
    out.append(v->str());
  }
  return out;
}

}  // namespace ingot::chat::jinja
