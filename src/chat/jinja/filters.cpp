// See builtins.h: filters of one value, and the table of all of them.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

const Text& text_of(const Value& v, Text& storage) {
  if (v.is_text()) return v.as_text();
  storage = v.str();
  return storage;
}

Value cased(Interpreter& in, const Value& v, LetterCase how) {
  Text storage;
  return in.made(with_case(text_of(v, storage), how));
}

Value filter_trim(Interpreter& in, const Value& v, Arguments& a) {
  Text storage;
  const Value* characters = a.find(0, "chars");
  const bool given = characters != nullptr && characters->kind() != Kind::none;
  return in.made(strip(text_of(v, storage), true, true, given ? &characters->as_text().bytes() : nullptr));
}

Value filter_length(Interpreter&, const Value& v, Arguments&) {
  return Value::integer(v.length());
}

Value filter_default(Interpreter&, const Value& v, Arguments& a) {
  const Value* otherwise = a.find(0, "default_value");
  const Value* boolean = a.find(1, "boolean");
  const bool falsy = boolean != nullptr && boolean->truth() && !v.truth();
  if (!v.is_undefined() && !falsy) return v;
  return otherwise != nullptr ? *otherwise : Value::text("");
}

Value filter_to_json(Interpreter& in, const Value& v, Arguments& a) {
  JsonStyle style;
  if (const Value* x = a.find(0, "ensure_ascii")) style.ensure_ascii = x->truth();
  if (const Value* x = a.find(1, "indent"); x != nullptr && x->kind() != Kind::none) {
    style.lines = true;
    if (x->is_text())
      style.indent = x->as_text();
    else
      style.indent =
          Text(std::string(static_cast<size_t>(std::clamp<int64_t>(x->as_integer(), 0, 100)), ' '));
    style.item_separator = ",";
  }
  if (const Value* x = a.find(2, "separators"); x != nullptr && x->kind() != Kind::none) {
    const List parts = x->items();
    if (parts.size() != 2) throw Fault{"'separators' needs two strings", {}};
    style.item_separator = parts[0].str().bytes();
    style.key_separator = parts[1].str().bytes();
  }
  if (const Value* x = a.find(3, "sort_keys")) style.sort_keys = x->truth();
  return in.made(to_json(v, style));
}

Value filter_replace(Interpreter& in, const Value& v, Arguments& a) {
  Text storage, old_storage, new_storage;
  const Text& old = text_of(a.need(0, "old"), old_storage);
  const Text& with = text_of(a.need(1, "new"), new_storage);
  const Value* count = a.find(2, "count");
  const int64_t limit = count != nullptr && count->kind() != Kind::none ? count->as_integer() : -1;
  const Text& text = text_of(v, storage);
  in.charge(static_cast<int64_t>(std::min<double>(
      1e18, static_cast<double>(text.size() + 1) * static_cast<double>(with.size() + 1) / 4096)));
  return in.made(replace(text, old.bytes(), with, limit));
}

Value filter_int(Interpreter&, const Value& v, Arguments& a) {
  const Value* otherwise = a.find(0, "default");
  const Value* base = a.find(1, "base");
  const auto fallback = [&] { return otherwise != nullptr ? *otherwise : Value::integer(0); };
  if (v.kind() == Kind::number) {
    const double d = std::trunc(v.as_number());
    return std::abs(d) < 9e18 ? Value::integer(static_cast<int64_t>(d), v.origin()) : fallback();
  }
  if (v.is_number()) return Value::integer(v.as_integer(), v.origin());
  if (!v.is_text()) return fallback();
  const std::string s = strip(v.as_text(), true, true).bytes();
  try {
    size_t used = 0;
    const int radix = base != nullptr ? static_cast<int>(base->as_integer()) : 10;
    const int64_t i = std::stoll(s, &used, radix);
    if (used == s.size()) return Value::integer(i, v.origin());
    const double d = std::stod(s, &used);
    if (used == s.size() && std::abs(d) < 9e18) return Value::integer(static_cast<int64_t>(d), v.origin());
  } catch (const std::exception&) {
  }
  return fallback();
}

Value filter_float(Interpreter&, const Value& v, Arguments& a) {
  const Value* otherwise = a.find(0, "default");
  if (v.is_number()) return Value::number(v.as_number(), v.origin());
  if (v.is_text()) try {
      const std::string s = strip(v.as_text(), true, true).bytes();
      size_t used = 0;
      const double d = std::stod(s, &used);
      if (used == s.size()) return Value::number(d, v.origin());
    } catch (const std::exception&) {
    }
  return otherwise != nullptr ? *otherwise : Value::number(0);
}

Value filter_round(Interpreter&, const Value& v, Arguments& a) {
  const Value* precision = a.find(0, "precision");
  const Value* method = a.find(1, "method");
  const std::string how = method != nullptr ? method->str().bytes() : "common";
  if (!v.is_number()) throw Fault{fmt::format("a {} cannot be rounded", v.type_name()), {}};
  const int64_t digits = precision != nullptr ? precision->as_integer() : 0;
  if (how != "common" && how != "ceil" && how != "floor")
    throw Fault{fmt::format("round has no method '{}'", how), {}};
  if (how == "common" && v.kind() != Kind::number) return Value::integer(v.as_integer(), v.origin());
  if (how == "common" && digits >= 0 &&
      digits < 300)  // to the nearest decimal, ties to even, as Python's round
    return Value::number(std::stod(fmt::format("{:.{}f}", v.as_number(), digits)), v.origin());
  const double scale = std::pow(10.0, static_cast<double>(digits)), x = v.as_number() * scale;
  return Value::number((how == "ceil"    ? std::ceil(x)
                        : how == "floor" ? std::floor(x)
                                         : std::nearbyint(x)) /
                           scale,
                       v.origin());
}

Value filter_abs(Interpreter& in, const Value& v, Arguments&) {
  if (!v.is_number()) throw Fault{fmt::format("a {} has no absolute value", v.type_name()), {}};
  return in.arithmetic("*", v, Value::integer(v.as_number() < 0 ? -1 : 1));
}

Value filter_indent(Interpreter& in, const Value& v, Arguments& a) {
  const Value* width = a.find(0, "width");
  const Value* first = a.find(1, "first");
  const Value* blank = a.find(2, "blank");
  const Text pad =
      width == nullptr ? Text("    ")
      : width->is_text()
          ? width->as_text()
          : Text(std::string(static_cast<size_t>(std::clamp<int64_t>(width->as_integer(), 0, 1000)), ' '));
  Text storage;
  Text text = text_of(v, storage);
  text.append("\n", 0);
  const std::vector<Text> lines = split_lines(text, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", 0);
    const bool padded = i == 0 ? first != nullptr && first->truth()
                               : lines[i].size() > 0 || (blank != nullptr && blank->truth());
    if (padded) out.append(pad);
    out.append(lines[i]);
  }
  return in.made(std::move(out));
}

Value filter_string(Interpreter& in, const Value& v, Arguments&) {
  return in.made(v.str());
}

Value filter_safe(Interpreter& in, const Value& v, Arguments&) {
  Text t = v.str();
  t.set_safe();
  return in.made(std::move(t));
}

Value filter_escape(Interpreter& in, const Value& v, Arguments&) {
  const Text t = v.str();
  return in.made(t.safe() ? t : escape_html(t));
}

Value filter_format(Interpreter& in, const Value& v, Arguments& a) {
  for (size_t i = 0; i < a.positional.size(); ++i) a.find(i, "");
  if (!a.named.empty()) {
    Dict d;
    for (const auto& [key, value] : a.named) {
      d.set(Value::text(key), value);
      a.find(a.positional.size(), key);
    }
    return in.made(format_percent(v.str(), Value::dict(std::move(d))));
  }
  return in.made(format_percent(v.str(), Value::tuple(a.positional)));
}

Value filter_center(Interpreter& in, const Value& v, Arguments& a) {
  const Value* width = a.find(0, "width");
  const int64_t w = std::clamp<int64_t>(width != nullptr ? width->as_integer() : 80, 0, 100000);
  const Text t = v.str();
  const auto n = static_cast<int64_t>(count_characters(t.bytes()));
  const int64_t pad = std::max<int64_t>(0, w - n), left = pad / 2 + (pad & w & 1);
  Text out(std::string(static_cast<size_t>(left), ' '));
  out.append(t);
  out.append(std::string(static_cast<size_t>(pad - left), ' '), 0);
  return in.made(std::move(out));
}

Value filter_truncate(Interpreter& in, const Value& v, Arguments& a) {
  const Value* length = a.find(0, "length");
  const Value* kill_words = a.find(1, "killwords");
  const Value* end = a.find(2, "end");
  const Value* leeway = a.find(3, "leeway");
  const int64_t most = length != nullptr ? length->as_integer() : 255;
  const Text t = v.str(), tail = end != nullptr ? end->str() : Text("...");
  const int64_t slack = leeway != nullptr ? leeway->as_integer() : 5;
  if (static_cast<int64_t>(count_characters(t.bytes())) <= most + slack) return in.made(t);
  const int64_t keep = std::max<int64_t>(0, most - static_cast<int64_t>(count_characters(tail.bytes())));
  Text out = t.slice(0, byte_of_character(t.bytes(), static_cast<size_t>(keep)));
  if (kill_words == nullptr || !kill_words->truth()) {
    const size_t space = out.bytes().rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(tail);
  return in.made(std::move(out));
}

Value filter_word_count(Interpreter&, const Value& v, Arguments&) {
  const std::string s = v.str().bytes();
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    uint32_t c = 0;
    at += character_length(s, at, &c);
    const bool word = c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                      (c >= 'A' && c <= 'Z') || (c > 0x7F && !is_space(c));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::integer(count);
}

Value filter_url_encode(Interpreter& in, const Value& v, Arguments&) {
  const Text t = v.str();
  Text out;
  for (size_t i = 0; i < t.size(); ++i) {
    const char c = t.bytes()[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    out.append(plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c)), t.origin_at(i));
  }
  return in.made(std::move(out));
}

const std::map<std::string_view, FilterFunction>& plain_filters() {
  static const std::map<std::string_view, FilterFunction> table = {
      {"abs", filter_abs},
      {"capitalize",
       [](Interpreter& in, const Value& v, Arguments&) { return cased(in, v, LetterCase::capital); }},
      {"center", filter_center},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"e", filter_escape},
      {"escape", filter_escape},
      {"float", filter_float},
      {"format", filter_format},
      {"indent", filter_indent},
      {"int", filter_int},
      {"length", filter_length},
      {"lower", [](Interpreter& in, const Value& v, Arguments&) { return cased(in, v, LetterCase::lower); }},
      {"replace", filter_replace},
      {"round", filter_round},
      {"safe", filter_safe},
      {"string", filter_string},
      {"title", [](Interpreter& in, const Value& v, Arguments&) { return cased(in, v, LetterCase::title); }},
      {"tojson", filter_to_json},
      {"trim", filter_trim},
      {"truncate", filter_truncate},
      {"upper", [](Interpreter& in, const Value& v, Arguments&) { return cased(in, v, LetterCase::upper); }},
      {"urlencode", filter_url_encode},
      {"wordcount", filter_word_count},
  };
  return table;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto found = plain_filters().find(name);
  return found != plain_filters().end() ? found->second : find_sequence_filter(name);
}

std::string filter_names() {
  std::string out;
  for (const auto& [name, function] : plain_filters()) out += std::string(name) + ", ";
  return out + sequence_filter_names();
}

}  // namespace ingot::chat::jinja
