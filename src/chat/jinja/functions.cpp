// See builtins.h: the functions that every template can call.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

Value range_function(Interpreter& in, Arguments& a) {
  int64_t numbers[3] = {0, 0, 1};
  const size_t n = a.positional.size();
  if (n < 1 || n > 3) throw Fault{"range takes one to three integers", {}};
  for (size_t i = 0; i < n; ++i) {
    const Value& v = a.need(i, "");
    if (v.kind() != Value::Kind::integer && v.kind() != Value::Kind::boolean)
      throw Fault{fmt::format("range takes integers, found {}", v.type_name()), {}};
    numbers[n == 1 ? 1 : i] = v.as_integer();
  }
  a.refuse_others("range");
  const int64_t begin = numbers[0], end = numbers[1], step = numbers[2];
  if (step == 0) throw Fault{"the step of a range is 0", {}};
  const double count = (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (count > 100000) throw Fault{"a range has at most 100000 numbers", {}};
  in.charge(static_cast<int64_t>(std::max(count, 0.0)));
  List out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    out.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(out));
}

/// A dict from another one, or pairs, and named values.
Dict dict_from(Arguments& a) {
  Dict out;
  if (const Value* first = a.find(0, "")) {
    if (first->is_dict())
      out = first->as_dict();
    else if (first->kind() == Value::Kind::name_space)
      out = first->variables();
    else
      for (const Value& pair : first->items()) {
        const List both = pair.items();
        if (both.size() != 2) throw Fault{"dict needs pairs of key and value", {}};
        out.set(both[0], both[1]);
      }
  }
  for (const auto& [key, value] : a.named) out.set(Value::text(key), value);
  return out;
}

Value namespace_function(Interpreter&, Arguments& a) {
  auto variables = std::make_shared<Dict>(dict_from(a));
  for (const auto& [key, value] : variables->items)
    if (key.is_text() && key.as_text().bytes().starts_with('_'))
      throw Fault{fmt::format("a namespace has no attribute '{}': names that begin with '_' are refused",
                              key.as_text().bytes()),
                  {}};
  return Value::name_space(std::move(variables));
}

Value strftime_function(Interpreter& in, Arguments& a) {
  const std::string format = a.need(0, "format").str().bytes();
  a.refuse_others("strftime_now");
  if (format.size() > 1000) throw Fault{"the format of strftime_now is longer than 1000 bytes", {}};
  if (format.empty()) return Value::text("");
  const std::time_t now = in.now();
  std::tm local{};
  ::localtime_r(&now, &local);
  std::string out(8192, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  return Value::text(out);
}

Value cycler_function(Interpreter&, Arguments& a) {
  if (a.positional.empty()) throw Fault{"cycler needs values", {}};
  auto state = std::make_shared<Dict>();
  const auto at = std::make_shared<size_t>(0);
  const List items = a.positional;
  state->set(Value::text("next"), Value::function("cycler.next", [items, at](Interpreter&, Arguments&) {
               return items[(*at)++ % items.size()];
             }));
  state->set(Value::text("reset"), Value::function("cycler.reset", [at](Interpreter&, Arguments&) {
               *at = 0;
               return Value::none();
             }));
  return Value::name_space(std::move(state));
}

Value joiner_function(Interpreter&, Arguments& a) {
  const Value* given = a.find(0, "sep");
  const Value separator = given != nullptr ? *given : Value::text(", ");
  a.refuse_others("joiner");
  const auto used = std::make_shared<bool>(false);
  return Value::function("joiner", [separator, used](Interpreter&, Arguments&) {
    return std::exchange(*used, true) ? separator : Value::text("");
  });
}

Value raise_function(Interpreter&, Arguments& a) {
  throw Refusal{a.need(0, "message").str().bytes()};
}

}  // namespace

std::vector<std::pair<std::string, Value>> global_functions() {
  std::vector<std::pair<std::string, Value>> out;
  const auto add = [&](const char* name, Value (*call)(Interpreter&, Arguments&)) {
    out.emplace_back(name, Value::function(name, call));
  };
  add("range", range_function);
  add("namespace", namespace_function);
  add("dict", [](Interpreter&, Arguments& a) { return Value::dict(dict_from(a)); });
  add("cycler", cycler_function);
  add("joiner", joiner_function);
  add("raise_exception", raise_function);
  add("strftime_now", strftime_function);
  return out;
}

}  // namespace ingot::chat::jinja
