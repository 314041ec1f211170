// See builtins.h: JSON as Python's json.dumps writes it, with the origin of every byte.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void value(const Value& v, int level) {
    if (level > 200) throw Fault{"a value nests too deep for JSON", {}};
    switch (v.kind()) {
      case Kind::none:
        put("null", v);
        break;
      case Kind::boolean:
        put(v.as_boolean() ? "true" : "false", v);
        break;
      case Kind::integer:
        put(std::to_string(v.as_integer()), v);
        break;
      case Kind::number:
        put(number(v.as_number()), v);
        break;
      case Kind::text:
        string(v.as_text());
        break;
      case Kind::list:
      case Kind::tuple:
        list(v, level);
        break;
      case Kind::dict:
        dict(v, level);
        break;
      case Kind::undefined:
        throw Fault{v.why_undefined() + ", so it is no JSON", {}};
      default:
        throw Fault{fmt::format("a {} is no JSON", v.type_name()), {}};
    }
  }
  Text take() { return std::move(out_); }

 private:
  void put(std::string_view s, const Value& v) { out_.append(s, v.origin()); }
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return python_number(d);
  }

  void string(const Text& t) {
    const Origin edge = t.origin_at(0);
    out_.append("\"", edge);
    for (size_t at = 0; at < t.size();) {
      uint32_t c = 0;
      const size_t length = character_length(t.bytes(), at, &c);
      out_.append(character(c, std::string_view(t.bytes()).substr(at, length)), t.origin_at(at));
      at += length;
    }
    out_.append("\"", edge);
  }

  std::string character(uint32_t c, std::string_view bytes) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    if (c < 0x20) return fmt::format("\\u{:04x}", c);
    if (!style_.ensure_ascii || c < 0x7F) return std::string(bytes);
    if (c < 0x10000) return fmt::format("\\u{:04x}", c);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                       0xDC00 + ((c - 0x10000) & 0x3FF));
  }

  void line(int level, const Value& v) {
    if (!style_.lines) return;
    put("\n", v);
    for (int i = 0; i < level; ++i) out_.append(style_.indent.bytes(), v.origin());
  }

  void list(const Value& v, int level) {
    put("[", v);
    bool first = true;
    for (const Value& item : v.as_list()) {
      if (!first) put(style_.item_separator, v);
      first = false;
      line(level + 1, v);
      value(item, level + 1);
    }
    if (!first) line(level, v);
    put("]", v);
  }

  void key(const Value& k) {
    if (k.is_text()) return string(k.as_text());
    if (!k.is_number() && k.kind() != Kind::none)
      throw Fault{fmt::format("a {} is no key of JSON", k.type_name()), {}};
    put("\"", k);
    value(k, 0);
    put("\"", k);
  }

  void dict(const Value& v, int level) {
    std::vector<std::pair<Value, Value>> items = v.as_dict().items;
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return a.first.less(b.first); });
    put("{", v);
    bool first = true;
    for (const auto& [k, item] : items) {
      if (!first) put(style_.item_separator, v);
      first = false;
      line(level + 1, v);
      key(k);
      put(style_.key_separator, v);
      value(item, level + 1);
    }
    if (!first) line(level, v);
    put("}", v);
  }

  const JsonStyle& style_;
  Text out_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.value(value, 0);
  return writer.take();
}

}  // namespace ingot::chat::jinja
