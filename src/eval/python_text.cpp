// See python_text.h.
#include "eval/python_text.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace ingot {
namespace {

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

void append_json_string(std::string& out, std::string_view bytes) {
  const std::string text = utf8::repair(bytes);
  out += '"';
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += u < 0x20 ? fmt::format("\\u{:04x}", u) : std::string(1, c);
    }
  }
  out += '"';
}

void append_python_json(std::string& out, const TaskJson& v, int indent, int depth) {
  const auto line = [&](int d) {
    if (indent > 0) out += '\n', out.append(static_cast<size_t>(indent * d), ' ');
  };
  if (v.is_string()) return append_json_string(out, v.get_ref<const std::string&>());
  if (v.is_number_float()) {
    const auto x = v.get<double>();
    out += std::isnan(x) ? "NaN" : std::isinf(x) ? (x < 0 ? "-Infinity" : "Infinity") : python_float(x);
    return;
  }
  if (!v.is_structured()) return void(out += v.dump());
  const char open = v.is_array() ? '[' : '{', close = v.is_array() ? ']' : '}';
  out += open;
  bool first = true;
  for (auto it = v.begin(); it != v.end(); ++it) {
    if (!first) out += indent > 0 ? "," : ", ";
    first = false;
    line(depth + 1);
    if (v.is_object()) append_json_string(out, it.key()), out += ": ";
    append_python_json(out, *it, indent, depth + 1);
  }
  if (!first) line(depth);
  out += close;
}

/// repr() of a text; the usual cases.
std::string python_repr(const std::string& text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += c;
  }
  return out + quote;
}

std::string python_inside(const TaskJson& v) {
  return v.is_string() ? python_repr(v.get_ref<const std::string&>()) : python_str(v);
}

}  // namespace

std::string python_float(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::scientific).ptr;
  std::string s(digits, end);
  const size_t e = s.find('e');
  const int exponent = std::stoi(s.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return s;
  char fixed[400];
  std::string text(fixed, std::to_chars(fixed, fixed + sizeof fixed, x, std::chars_format::fixed).ptr);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string python_str(const TaskJson& v) {
  if (v.is_string()) return v.get<std::string>();
  if (v.is_boolean()) return v.get<bool>() ? "True" : "False";
  if (v.is_null()) return "None";
  if (v.is_number_float()) return python_float(v.get<double>());
  if (!v.is_structured()) return v.dump();
  std::string out(1, v.is_array() ? '[' : '{');
  bool first = true;
  for (auto it = v.begin(); it != v.end(); ++it) {
    if (!first) out += ", ";
    first = false;
    if (v.is_object()) out += python_repr(it.key()) + ": ";
    out += python_inside(*it);
  }
  return out + (v.is_array() ? ']' : '}');
}

std::string python_json(const TaskJson& value, int indent) {
  std::string out;
  append_python_json(out, value, indent, 0);
  return out;
}

std::string_view python_strip(std::string_view text) {
  while (!text.empty()) {
    const utf8::Step s = utf8::decode(text);
    if (s.status != utf8::Status::valid || !is_space(s.code_point)) break;
    text.remove_prefix(s.length);
  }
  return python_rstrip(text);
}

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    const utf8::Step s = utf8::decode(text.substr(at));
    if (s.status != utf8::Status::valid || !is_space(s.code_point)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

int64_t characters(std::string_view text) {
  int64_t n = 0;
  while (!text.empty()) {
    text.remove_prefix(utf8::decode(text).length);
    ++n;
  }
  return n;
}

}  // namespace ingot
