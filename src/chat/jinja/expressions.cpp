// See interpreter.h: how expressions become values.
#include <fmt/core.h>

#include "base/error.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/lexer.h"

namespace ingot::chat::jinja {

/// Bounds how deep expressions are on the stack of the program.
class Interpreter::Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    if (++depth_ > kMost) {
      --depth_;
      throw Fault{"expressions and macros nest too deep", {}};
    }
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static constexpr int kMost = 1000;
  int& depth_;
};

Value Interpreter::evaluate(const Expression& e) {
  try {
    const Depth depth(depth_);
    charge(1);
    return evaluate_inner(e);
  } catch (const Fault& fault) {
    fail_in_template(name_, e.place, fault.message, fault.hint);
  } catch (const Refusal& refusal) {
    fail_in_template(name_, e.place, "the template refuses the conversation: " + refusal.message);
  }
}

Value Interpreter::evaluate_inner(const Expression& e) {
  using Kind = Expression::Kind;
  const auto item = [&](size_t i) { return e.items[i] ? evaluate(*e.items[i]) : Value::none(); };
  switch (e.kind) {
    case Kind::constant:
      return e.value;
    case Kind::name:
      return look_up(e.name);
    case Kind::list:
      return Value::list(all(e));
    case Kind::tuple:
      return Value::tuple(all(e));
    case Kind::dict: {
      Dict out;
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) out.set(item(i), item(i + 1));
      return Value::dict(std::move(out));
    }
    case Kind::attribute:
      return attribute(item(0), e.name);
    case Kind::subscript:
      return subscript(item(0), item(1));
    case Kind::slice:
      return slice(item(0), item(1), item(2), item(3));
    case Kind::call:
      return call_expression(e);
    case Kind::filter:
      return apply_filter(e, nullptr);
    case Kind::test:
      return apply_test(e);
    case Kind::negated:
      return Value::boolean(!item(0).truth());
    case Kind::minus:
    case Kind::plus: {
      const Value v = item(0);
      if (v.is_undefined()) throw Fault{v.why_undefined(), {}};
      if (!v.is_number()) throw Fault{fmt::format("a {} has no sign", v.type_name()), {}};
      const Value sign = Value::integer(e.kind == Kind::minus ? -1 : 1);
      return arithmetic("*", v, sign);
    }
    case Kind::both: {
      Value left = item(0);
      return left.truth() ? item(1) : left;
    }
    case Kind::either: {
      Value left = item(0);
      return left.truth() ? left : item(1);
    }
    case Kind::choice:
      if (item(1).truth()) return item(0);
      return e.items[2]
                 ? item(2)
                 : Value::undefined("the condition of an 'if' without 'else' in an expression was false");
    case Kind::comparison:
      return compare_chain(e);
    case Kind::arithmetic:
      return arithmetic(e.name, item(0), item(1));
    case Kind::concatenation:
      return concatenate(all(e));
  }
  return {};
}

List Interpreter::all(const Expression& e) {
  List out;
  for (const auto& item : e.items) out.push_back(evaluate(*item));
  return out;
}

Value Interpreter::look_up(const std::string& name) const {
  for (const Scope* s = scope_.get(); s != nullptr; s = s->parent.get())
    for (const auto& [key, value] : s->variables)
      if (key == name) return value;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::compare_chain(const Expression& e) {
  Value left = evaluate(*e.items[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.items[i + 1]);
    if (!compare(e.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Arguments Interpreter::arguments(const Expression& e, size_t first) {
  Arguments out;
  for (size_t i = first; i < e.items.size(); ++i) out.positional.push_back(evaluate(*e.items[i]));
  for (const auto& [name, value] : e.named) out.named.emplace_back(name, evaluate(*value));
  if (e.more_positional)
    for (Value& v : evaluate(*e.more_positional).items()) out.positional.push_back(std::move(v));
  if (e.more_named) {
    const Value more = evaluate(*e.more_named);
    if (!more.is_dict()) throw Fault{fmt::format("'**' needs a dict, found {}", more.type_name()), {}};
    for (const auto& [key, value] : more.as_dict().items) out.named.emplace_back(key.str().bytes(), value);
  }
  return out;
}

Value Interpreter::call(const Value& function, Arguments& a) {
  if (function.is_undefined()) throw Fault{function.why_undefined(), {}};
  if (function.kind() == Value::Kind::loop && !function.as_loop().recurse.is_undefined())
    return function.as_loop().recurse.as_function().call(*this, a);
  if (function.kind() != Value::Kind::function)
    throw Fault{fmt::format("a {} cannot be called", function.type_name()), {}};
  return function.as_function().call(*this, a);
}

Value Interpreter::call_expression(const Expression& e) {
  const Value callee = evaluate(*e.items[0]);
  Arguments a = arguments(e, 1);
  return call(callee, a);
}

Value Interpreter::filter(std::string_view name, const Value& input, Arguments& a) {
  const FilterFunction f = find_filter(name);
  if (f == nullptr)
    throw Fault{fmt::format("the filter '{}' is not known here", name), "filters: " + filter_names()};
  if (input.is_sequence() || input.is_text())
    charge(input.is_text() ? static_cast<int64_t>(input.as_text().size() / 16) : input.length());
  Value out = f(*this, input, a);
  a.refuse_others(fmt::format("the filter '{}'", name));
  return out;
}

bool Interpreter::test(std::string_view name, const Value& input, Arguments& a) {
  const TestFunction f = find_test(name);
  if (f == nullptr)
    throw Fault{fmt::format("the test '{}' is not known here", name), "tests: " + test_names()};
  const bool out = f(*this, input, a);
  a.refuse_others(fmt::format("the test '{}'", name));
  return out;
}

Value Interpreter::apply_filter(const Expression& e, const Value* input) {
  // In {% filter %} and {% set %} the innermost filter has no input of its own.
  const Value value = !e.items[0]        ? *input
                      : input != nullptr ? apply_filter(*e.items[0], input)
                                         : evaluate(*e.items[0]);
  Arguments a = arguments(e, 1);
  return filter(e.name, value, a);
}

Value Interpreter::apply_test(const Expression& e) {
  const Value value = evaluate(*e.items[0]);
  Arguments a = arguments(e, 1);
  return Value::boolean(test(e.name, value, a));
}

Value Interpreter::made(Text text) {
  if (text.size() > limits_.bytes)
    throw Fault{fmt::format("a text grows beyond {} bytes", limits_.bytes), {}};
  charge(static_cast<int64_t>(text.size() / 64));
  return Value::text(std::move(text));
}

Value Interpreter::made_list(List list, Origin origin) {
  charge(static_cast<int64_t>(list.size()));
  return Value::list(std::move(list), origin);
}

}  // namespace ingot::chat::jinja
