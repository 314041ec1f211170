// See interpreter.h: attributes, subscripts, slices, arithmetic and comparisons, as Python has them.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "chat/jinja/builtins.h"
#include "chat/jinja/interpreter.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

void require_defined(const Value& v) {
  if (v.is_undefined()) throw Fault{v.why_undefined(), {}};
}

Value missing(const Value& object, const std::string& key) {
  return Value::undefined(fmt::format("the {} has no '{}'", object.type_name(), key));
}

Value loop_attribute(const Value& object, std::string_view name) {
  const LoopState& s = object.as_loop();
  const auto n = static_cast<int64_t>(s.items.size()), i = static_cast<int64_t>(s.index);
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "revindex") return Value::integer(n - i);
  if (name == "revindex0") return Value::integer(n - i - 1);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "last") return Value::boolean(i + 1 == n);
  if (name == "length") return Value::integer(n);
  if (name == "depth") return Value::integer(s.depth);
  if (name == "depth0") return Value::integer(s.depth - 1);
  if (name == "previtem") return i > 0 ? s.items[s.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return i + 1 < n ? s.items[s.index + 1] : Value::undefined("there is no next item");
  if (name == "cycle")
    return Value::function("loop.cycle", [object](Interpreter&, Arguments& a) {
      if (a.positional.empty()) throw Fault{"loop.cycle needs values", {}};
      return a.positional[object.as_loop().index % a.positional.size()];
    });
  if (name == "changed")
    return Value::function("loop.changed", [object](Interpreter&, Arguments& a) {
      Value now = Value::tuple(a.positional);
      LoopState& state = object.as_loop();
      const bool changed = state.changed.is_undefined() || !state.changed.equals(now);
      state.changed = std::move(now);
      return Value::boolean(changed);
    });
  return missing(object, std::string(name));
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) throw Fault{"an integer leaves 64 bits", {}};
  return value;
}

int64_t floor_division(int64_t a, int64_t b) {
  if (b == 0) throw Fault{"a division by zero", {}};
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  return a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0);
}

int64_t integer_product(int64_t a, int64_t b) {
  int64_t out = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &out);
  return checked(overflow, out);
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t out = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) out = integer_product(out, base);
    if (exponent > 1) base = integer_product(base, base);
  }
  return out;
}

Value integer_arithmetic(std::string_view op, int64_t a, int64_t b, Origin origin) {
  int64_t out = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &out);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &out);
  if (op == "*") out = integer_product(a, b);
  if (op == "//") out = floor_division(a, b);
  if (op == "%") out = b == -1 ? 0 : a - b * floor_division(a, b);
  if (op == "**" && b < 0)
    return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)), origin);
  if (op == "**") out = integer_power(a, b);
  return Value::integer(checked(overflow, out), origin);
}

Value real_arithmetic(std::string_view op, double a, double b, Origin origin) {
  if (op == "+") return Value::number(a + b, origin);
  if (op == "-") return Value::number(a - b, origin);
  if (op == "*") return Value::number(a * b, origin);
  if (op == "**") return Value::number(std::pow(a, b), origin);
  if (b == 0) throw Fault{"a division by zero", {}};
  if (op == "/") return Value::number(a / b, origin);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return Value::number(rest, origin);
  return Value::number(std::round((a - rest) / b), origin);
}

/// begin, end and step of a slice of `length` items, as Python bounds them.
struct SliceRange {
  int64_t begin, end, step;
};
SliceRange slice_range(int64_t length, const Value& begin, const Value& end, const Value& step) {
  const auto number = [](const Value& v) {
    require_defined(v);
    if (v.kind() != Kind::integer && v.kind() != Kind::boolean)
      throw Fault{fmt::format("the bound of a slice is a {}, expected an integer", v.type_name()), {}};
    return v.as_integer();
  };
  SliceRange r{0, length, step.kind() == Kind::none ? 1 : number(step)};
  if (r.step == 0) throw Fault{"the step of a slice is 0", {}};
  const bool back = r.step < 0;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.kind() == Kind::none) return otherwise;
    int64_t i = number(v);
    if (i < 0) i = std::max<int64_t>(i + length, back ? -1 : 0);
    return std::min(i, back ? length - 1 : length);
  };
  r.begin = bound(begin, back ? length - 1 : 0);
  r.end = bound(end, back ? -1 : length);
  r.step = std::clamp<int64_t>(r.step, -length - 1, length + 1);
  return r;
}

Value repeat(Interpreter& in, const Value& what, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (what.is_text()) {
    in.charge(static_cast<int64_t>(std::min<double>(
        1e18, static_cast<double>(count) * static_cast<double>(what.as_text().size()) / 16)));
    Text out;
    for (int64_t i = 0; i < count; ++i) out.append(what.as_text());
    return in.made(std::move(out));
  }
  in.charge(static_cast<int64_t>(
      std::min<double>(1e18, static_cast<double>(count) * static_cast<double>(what.as_list().size()))));
  List out;
  for (int64_t i = 0; i < count; ++i) out.insert(out.end(), what.as_list().begin(), what.as_list().end());
  return what.kind() == Kind::tuple ? Value::tuple(std::move(out))
                                    : Value::list(std::move(out), what.origin());
}

/// A text as it joins others of which some are safe for HTML.
Text joined_part(const Text& part, bool any_safe) {
  return any_safe && !part.safe() ? escape_html(part) : part;
}

}  // namespace

Value Interpreter::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (object.kind() == Kind::loop) return loop_attribute(object, name);
  if (object.kind() == Kind::name_space) {
    const Value* v = object.variables().find(name);
    return v != nullptr ? *v : missing(object, std::string(name));
  }
  if (object.kind() == Kind::function && name == "name") return Value::text(object.as_function().name);
  Value method = find_method(object, name);
  if (!method.is_undefined()) return method;
  if (object.is_dict())
    if (const Value* v = object.as_dict().find(name)) return *v;
  return missing(object, std::string(name));
}

Value Interpreter::subscript(const Value& object, const Value& key) {
  require_defined(object);
  require_defined(key);
  if (object.is_dict()) {
    charge(1 + static_cast<int64_t>(object.as_dict().items.size() / 16));
    if (const Value* v = object.as_dict().find(key)) return *v;
  }
  if (key.is_text()) {
    if (object.is_dict()) {
      Value method = find_method(object, key.as_text().bytes());
      return method.is_undefined() ? missing(object, key.as_text().bytes()) : method;
    }
    return attribute(object, key.as_text().bytes());
  }
  if ((object.is_sequence() || object.is_text()) &&
      (key.kind() == Kind::integer || key.kind() == Kind::boolean)) {
    const int64_t length = object.length();
    int64_t i = key.as_integer();
    if (i < 0) i += length;
    if (i < 0 || i >= length) return missing(object, "[" + std::to_string(key.as_integer()) + "]");
    if (object.is_sequence()) return object.as_list()[static_cast<size_t>(i)];
    const Text& t = object.as_text();
    charge(static_cast<int64_t>(t.size() / 64));
    const size_t begin = byte_of_character(t.bytes(), static_cast<size_t>(i));
    return Value::text(t.slice(begin, begin + character_length(t.bytes(), begin)));
  }
  return missing(object, key.repr().bytes());
}

Value Interpreter::slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  require_defined(object);
  if (!object.is_sequence() && !object.is_text())
    throw Fault{fmt::format("a {} cannot be sliced", object.type_name()), {}};
  const int64_t length = object.length();
  charge(1 + (object.is_text() ? length / 64 : length));
  const SliceRange r = slice_range(length, begin, end, step);
  if (object.is_text() && r.step == 1) {
    const Text& t = object.as_text();
    if (r.begin >= r.end) return Value::text(Text());
    return made(t.slice(byte_of_character(t.bytes(), static_cast<size_t>(r.begin)),
                        byte_of_character(t.bytes(), static_cast<size_t>(r.end))));
  }
  const List items = object.items();
  List kept;
  for (int64_t i = r.begin; r.step > 0 ? i < r.end : i > r.end; i += r.step)
    kept.push_back(items[static_cast<size_t>(i)]);
  if (object.kind() == Kind::tuple) return Value::tuple(std::move(kept));
  if (object.kind() == Kind::list) return Value::list(std::move(kept), object.origin());
  Text out;
  for (const Value& v : kept) out.append(v.as_text());
  return made(std::move(out));
}

Value Interpreter::arithmetic(std::string_view op, const Value& left, const Value& right) {
  require_defined(left);
  if (op == "%" && left.is_text()) return made(format_percent(left.as_text(), right));
  require_defined(right);
  const Origin origin = left.origin() != 0 ? left.origin() : right.origin();
  if (left.is_number() && right.is_number()) {
    if (op != "/" && left.kind() != Kind::number && right.kind() != Kind::number)
      return integer_arithmetic(op, left.as_integer(), right.as_integer(), origin);
    return real_arithmetic(op, left.as_number(), right.as_number(), origin);
  }
  if (op == "+" && left.is_text() && right.is_text()) return concatenate({left, right});
  if (op == "+" && left.is_sequence() && left.kind() == right.kind()) {
    List out = left.as_list();
    out.insert(out.end(), right.as_list().begin(), right.as_list().end());
    charge(static_cast<int64_t>(out.size()));
    return left.kind() == Kind::tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out), origin);
  }
  const auto whole = [](const Value& v) { return v.kind() == Kind::integer || v.kind() == Kind::boolean; };
  if (op == "*" && (left.is_text() || left.is_sequence()) && whole(right))
    return repeat(*this, left, right.as_integer());
  if (op == "*" && (right.is_text() || right.is_sequence()) && whole(left))
    return repeat(*this, right, left.as_integer());
  throw Fault{fmt::format("'{}' does not join a {} and a {}", op, left.type_name(), right.type_name()),
              op == "+" ? "'~' joins any values as text" : ""};
}

Value Interpreter::concatenate(const List& parts) {
  bool any_safe = false;
  for (const Value& v : parts) any_safe = any_safe || (v.is_text() && v.as_text().safe());
  Text out;
  for (const Value& v : parts) {
    out.append(joined_part(v.str(), any_safe));
    if (out.size() > limits_.bytes) break;
  }
  if (any_safe) out.set_safe();
  return made(std::move(out));
}

bool Interpreter::compare(std::string_view op, const Value& left, const Value& right) {
  if (op == "in" || op == "not in") {
    bool found = false;
    if (right.is_text()) {
      require_defined(left);
      if (!left.is_text()) throw Fault{fmt::format("a str holds no {}", left.type_name()), {}};
      charge(static_cast<int64_t>(right.as_text().size() / 64));
      found = right.as_text().bytes().find(left.as_text().bytes()) != std::string::npos;
    } else if (right.is_dict()) {
      charge(1 + static_cast<int64_t>(right.as_dict().items.size() / 16));
      found = right.as_dict().find(left) != nullptr;
    } else if (right.is_sequence()) {
      charge(right.length());
      found = std::any_of(right.as_list().begin(), right.as_list().end(),
                          [&](const Value& v) { return v.equals(left); });
    } else if (!right.is_undefined()) {
      throw Fault{fmt::format("a {} cannot be searched", right.type_name()), {}};
    }
    return found == (op == "in");
  }
  if (left.is_sequence()) charge(left.length());
  if (op == "==") return left.equals(right);
  if (op == "!=") return !left.equals(right);
  if (op == "<") return left.less(right);
  if (op == ">") return right.less(left);
  if (op == "<=") return left.less(right) || left.equals(right);
  return right.less(left) || left.equals(right);
}

}  // namespace ingot::chat::jinja
