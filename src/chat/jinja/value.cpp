// See value.h: construction, comparison, and what Python's str() and repr() say.
#include "chat/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace ingot::chat::jinja {
namespace {

constexpr int kMaxDepthOfValues = 200;  // JSON from outside nests at most 64 deep; templates can build more

/// Counts how deep repr() and equals() have gone.
class ValueDepth {
 public:
  ValueDepth() {
    if (++depth() > kMaxDepthOfValues) {
      --depth();
      throw Fault{"a value nests too deep", {}};
    }
  }
  ~ValueDepth() { --depth(); }
  ValueDepth(const ValueDepth&) = delete;
  ValueDepth& operator=(const ValueDepth&) = delete;

 private:
  static int& depth() {
    thread_local int value = 0;
    return value;
  }
};

Text repr_of_text(const Text& text) {
  const std::string& s = text.bytes();
  const char quote = s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  Text out;
  const Origin edge = text.origin_at(0);
  out.append(std::string_view(&quote, 1), edge);
  for (size_t at = 0; at < s.size();) {
    uint32_t c = 0;
    const size_t length = character_length(s, at, &c);
    std::string one = s.substr(at, length);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) one.insert(0, 1, '\\');
    if (c == '\n') one = "\\n";
    if (c == '\r') one = "\\r";
    if (c == '\t') one = "\\t";
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || (c >= 0x7F && c <= 0xA0) || c == 0xAD)
      one = fmt::format("\\x{:02x}", c);
    if (c > 0x20 && c != ' ' && is_space(c) && c > 0xFF) one = fmt::format("\\u{:04x}", c);
    out.append(one, text.origin_at(at));
    at += length;
  }
  out.append(std::string_view(&quote, 1), edge);
  return out;
}

}  // namespace

std::string python_number(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    const std::string digits = text.substr(0, e);
    return fmt::format("{}e{}{:02d}", digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

const Value* Arguments::find(size_t index, std::string_view name) {
  if (index < positional.size()) {
    taken_ = std::max(taken_, index + 1);
    return &positional[index];
  }
  for (const auto& [key, value] : named)
    if (key == name) {
      used_.emplace_back(name);
      return &value;
    }
  return nullptr;
}

const Value& Arguments::need(size_t index, std::string_view name) {
  if (const Value* v = find(index, name)) return *v;
  throw Fault{fmt::format("the argument '{}' is missing", name), {}};
}

void Arguments::refuse_others(std::string_view callee) const {
  if (positional.size() > taken_)
    throw Fault{fmt::format("{} takes {} arguments, found {}", callee, taken_, positional.size()), {}};
  for (const auto& [key, value] : named)
    if (std::find(used_.begin(), used_.end(), key) == used_.end())
      throw Fault{fmt::format("{} has no argument '{}'", callee, key), {}};
}

Value Value::undefined(std::string what) {
  return Value(Kind::undefined, std::make_shared<const std::string>(std::move(what)));
}
Value Value::none(Origin origin) {
  return Value(Kind::none, std::monostate(), origin);
}
Value Value::boolean(bool b, Origin origin) {
  return Value(Kind::boolean, b, origin);
}
Value Value::integer(int64_t i, Origin origin) {
  return Value(Kind::integer, i, origin);
}
Value Value::number(double d, Origin origin) {
  return Value(Kind::number, d, origin);
}
Value Value::text(Text t) {
  const Origin origin = t.origin_at(0);
  return Value(Kind::text, std::make_shared<const Text>(std::move(t)), origin);
}
Value Value::list(List items, Origin origin) {
  return Value(Kind::list, std::make_shared<const List>(std::move(items)), origin);
}
Value Value::tuple(List items, Origin origin) {
  return Value(Kind::tuple, std::make_shared<const List>(std::move(items)), origin);
}
Value Value::dict(Dict items, Origin origin) {
  return Value(Kind::dict, std::make_shared<Dict>(std::move(items)), origin);
}
Value Value::name_space(std::shared_ptr<Dict> variables) {
  return Value(Kind::name_space, std::move(variables));
}
Value Value::function(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  return Value(Kind::function, std::make_shared<const Function>(Function{std::move(name), std::move(call)}));
}
Value Value::loop(std::shared_ptr<LoopState> state) {
  return Value(Kind::loop, std::move(state));
}

Value Value::from_json(const nlohmann::ordered_json& json, Origin origin) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return boolean(json.get<bool>(), origin);
    case Type::number_integer:
      return integer(json.get<int64_t>(), origin);
    case Type::number_unsigned: {
      const auto u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(INT64_MAX))
        throw Fault{fmt::format("the integer {} is too large", u), {}};
      return integer(static_cast<int64_t>(u), origin);
    }
    case Type::number_float:
      return number(json.get<double>(), origin);
    case Type::string:
      return text(json.get_ref<const std::string&>(), origin);
    case Type::array: {
      List out;
      for (const auto& item : json) out.push_back(from_json(item, origin));
      return list(std::move(out), origin);
    }
    case Type::object: {
      Dict out;
      for (const auto& [key, value] : json.items())
        out.items.emplace_back(text(key, origin), from_json(value, origin));
      return dict(std::move(out), origin);
    }
    default:
      return none(origin);
  }
}

int64_t Value::as_integer() const {
  return kind_ == Kind::boolean ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
}
double Value::as_number() const {
  return kind_ == Kind::number ? std::get<double>(data_) : static_cast<double>(as_integer());
}

const std::string& Value::why_undefined() const {
  static const std::string kNothing = "an undefined value";
  const auto* why = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return why != nullptr && *why ? **why : kNothing;
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& d) -> const void* {
        if constexpr (requires { d.get(); })
          return d.get();
        else
          return nullptr;
      },
      data_);
}

const char* Value::type_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::number:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "namespace";
    case Kind::function:
      return "function";
    default:
      return "loop";
  }
}

bool Value::truth() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return as_integer() != 0;
    case Kind::number:
      return as_number() != 0;
    case Kind::text:
      return as_text().size() > 0;
    case Kind::list:
    case Kind::tuple:
      return !as_list().empty();
    case Kind::dict:
      return !as_dict().items.empty();
    default:
      return true;
  }
}

Text Value::str() const {
  if (kind_ == Kind::text) return as_text();
  if (kind_ == Kind::undefined) return {};
  return repr();
}

Text Value::repr() const {
  const ValueDepth depth;
  Text out;
  const auto put = [&](std::string_view s) { out.append(s, origin_); };
  switch (kind_) {
    case Kind::undefined:
      put("Undefined");
      break;
    case Kind::none:
      put("None");
      break;
    case Kind::boolean:
      put(as_boolean() ? "True" : "False");
      break;
    case Kind::integer:
      put(std::to_string(as_integer()));
      break;
    case Kind::number:
      put(python_number(as_number()));
      break;
    case Kind::text:
      return repr_of_text(as_text());
    case Kind::list:
    case Kind::tuple: {
      put(kind_ == Kind::list ? "[" : "(");
      for (size_t i = 0; i < as_list().size(); ++i) {
        if (i > 0) put(", ");
        out.append(as_list()[i].repr());
      }
      if (kind_ == Kind::tuple && as_list().size() == 1) put(",");
      put(kind_ == Kind::list ? "]" : ")");
      break;
    }
    case Kind::dict: {
      put("{");
      for (size_t i = 0; i < as_dict().items.size(); ++i) {
        if (i > 0) put(", ");
        out.append(as_dict().items[i].first.repr());
        put(": ");
        out.append(as_dict().items[i].second.repr());
      }
      put("}");
      break;
    }
    default:
      throw Fault{fmt::format("a {} cannot be printed", type_name()), "call it, or print what it holds"};
  }
  return out;
}

bool Value::equals(const Value& other) const {
  const ValueDepth depth;
  if (is_number() && other.is_number()) {
    if (kind_ != Kind::number && other.kind_ != Kind::number) return as_integer() == other.as_integer();
    return as_number() == other.as_number();
  }
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return as_text().bytes() == other.as_text().bytes();
    case Kind::list:
    case Kind::tuple:
      return std::equal(as_list().begin(), as_list().end(), other.as_list().begin(), other.as_list().end(),
                        [](const Value& a, const Value& b) { return a.equals(b); });
    case Kind::dict: {
      if (as_dict().items.size() != other.as_dict().items.size()) return false;
      for (const auto& [key, value] : as_dict().items) {
        const Value* found = other.as_dict().find(key);
        if (found == nullptr || !value.equals(*found)) return false;
      }
      return true;
    }
    default:
      return identity() == other.identity();
  }
}

bool Value::less(const Value& other) const {
  const ValueDepth depth;
  if (is_number() && other.is_number()) {
    if (kind_ != Kind::number && other.kind_ != Kind::number) return as_integer() < other.as_integer();
    return as_number() < other.as_number();
  }
  if (is_text() && other.is_text()) return as_text().bytes() < other.as_text().bytes();
  if (is_sequence() && kind_ == other.kind_)
    return std::lexicographical_compare(as_list().begin(), as_list().end(), other.as_list().begin(),
                                        other.as_list().end(),
                                        [](const Value& a, const Value& b) { return a.less(b); });
  if (is_undefined() || other.is_undefined())
    throw Fault{(is_undefined() ? *this : other).why_undefined(), {}};
  throw Fault{fmt::format("{} and {} have no order", type_name(), other.type_name()), {}};
}

int64_t Value::length() const {
  switch (kind_) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return static_cast<int64_t>(count_characters(as_text().bytes()));
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(as_list().size());
    case Kind::dict:
      return static_cast<int64_t>(as_dict().items.size());
    case Kind::loop:
      return static_cast<int64_t>(as_loop().items.size());
    default:
      throw Fault{fmt::format("a {} has no length", type_name()), {}};
  }
}

List Value::items() const {
  switch (kind_) {
    case Kind::undefined:
      return {};
    case Kind::list:
    case Kind::tuple:
      return as_list();
    case Kind::text: {
      List out;
      const Text& t = as_text();
      for (size_t at = 0; at < t.size();) {
        const size_t length = character_length(t.bytes(), at);
        out.push_back(text(t.slice(at, at + length)));
        at += length;
      }
      return out;
    }
    case Kind::dict: {
      List out;
      for (const auto& [key, value] : as_dict().items) out.push_back(key);
      return out;
    }
    default:
      throw Fault{fmt::format("a {} cannot be iterated", type_name()), {}};
  }
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items)
    if (k.is_text() && k.as_text().bytes() == key) return &v;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [k, v] : items)
    if (k.equals(key)) return &v;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  for (auto& [k, v] : items)
    if (k.equals(key)) {
      v = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

}  // namespace ingot::chat::jinja
