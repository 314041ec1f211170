// See interpreter.h: how statements run.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/lexer.h"

namespace ingot::chat::jinja {

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : variables)
    if (key == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(std::string(name), std::move(value));
}

Interpreter::Interpreter(std::string name, const Limits& limits, int64_t now)
    : name_(std::move(name)), limits_(limits), now_(now), globals_(std::make_shared<Scope>()) {
  globals_->variables = global_functions();
}

Interpreter::~Interpreter() {
  for (const auto& scope : with_functions_) scope->variables.clear();
}

template <class Body>
auto Interpreter::in_scope(std::shared_ptr<Scope> parent, Body&& body) {
  struct Restore {
    std::shared_ptr<Scope>& scope;
    std::shared_ptr<Scope> saved;
    ~Restore() { scope = std::move(saved); }
  };
  auto inner = std::make_shared<Scope>();
  inner->parent = std::move(parent);
  const Restore restore{scope_, std::exchange(scope_, std::move(inner))};
  return body();
}

Text Interpreter::render(const Statements& statements, std::vector<std::pair<std::string, Value>> variables) {
  Text out;
  out_ = &out;
  scope_ = globals_;
  for (auto& [name, value] : variables) globals_->set(name, std::move(value));
  run(statements);
  return out;
}

void Interpreter::charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps)
    throw Fault{fmt::format("the template takes more than {} steps", limits_.steps),
                "it may loop without end"};
}

void Interpreter::write(const Text& text) {
  if (out_->size() + text.size() > limits_.bytes)
    throw Fault{fmt::format("the template writes more than {} bytes", limits_.bytes), {}};
  charge(1 + static_cast<int64_t>(text.size() / 64));
  out_->append(text);
}

Interpreter::Flow Interpreter::run(const Statements& statements) {
  for (const auto& s : statements) {
    const Flow flow = [&] {
      try {
        charge(1);
        return execute(*s);
      } catch (const Fault& fault) {
        fail_in_template(name_, s->place, fault.message, fault.hint);
      }
    }();
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Text Interpreter::captured(const Statements& statements) {
  struct Restore {
    Text*& out;
    Text* saved;
    ~Restore() { out = saved; }
  };
  Text out;
  const Restore restore{out_, std::exchange(out_, &out)};
  run(statements);
  return out;
}

Interpreter::Flow Interpreter::execute(const Statement& s) {
  using Kind = Statement::Kind;
  switch (s.kind) {
    case Kind::text:
      write(Text(s.text));
      break;
    case Kind::print:
      write(evaluate(*s.expression).str());
      break;
    case Kind::branch:
      return run_branch(s);
    case Kind::loop:
      run_loop(s, evaluate(*s.expression), 1);
      break;
    case Kind::assign:
      run_assign(s);
      break;
    case Kind::macro:
      define_macro(s);
      break;
    case Kind::call_block:
      run_call_block(s);
      break;
    case Kind::filtered: {
      const Value body = in_scope(scope_, [&] { return made(captured(s.bodies[0])); });
      write(apply_filter(*s.expression, &body).str());
      break;
    }
    case Kind::with: {
      List values;
      for (const auto& e : s.conditions) values.push_back(evaluate(*e));
      return in_scope(scope_, [&] {
        for (size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i]);
        return run(s.bodies[0]);
      });
    }
    case Kind::generation: {
      Text body = in_scope(scope_, [&] { return captured(s.bodies[0]); });
      body.mark_generated();
      write(body);
      break;
    }
    case Kind::stop_loop:
      return Flow::stop;
    case Kind::next_item:
      return Flow::next;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_branch(const Statement& s) {
  for (size_t i = 0; i < s.conditions.size(); ++i)
    if (evaluate(*s.conditions[i]).truth()) return run(s.bodies[i]);
  return s.bodies.size() > s.conditions.size() ? run(s.bodies.back()) : Flow::on;
}

List Interpreter::loop_items(const Statement& s, const Value& items) {
  List list = items.items();
  charge(static_cast<int64_t>(list.size()));
  if (s.conditions.empty()) return list;
  List kept;
  for (Value& item : list) {
    const bool keep = in_scope(scope_, [&] {
      assign(s.targets[0], item);
      return evaluate(*s.conditions[0]).truth();
    });
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

void Interpreter::run_loop(const Statement& s, const Value& items, int64_t depth) {
  if (depth > limits_.calls)
    throw Fault{fmt::format("the loop calls itself more than {} deep", limits_.calls), {}};
  auto state = std::make_shared<LoopState>();
  state->items = loop_items(s, items);
  state->depth = depth;
  if (s.recursive) {
    const std::shared_ptr<Scope> defined = scope_;
    state->recurse = Value::function("loop", [this, &s, defined, depth](Interpreter&, Arguments& a) {
      const Value children = a.need(0, "iterable");
      a.refuse_others("loop");
      Text out;
      Text* const saved = std::exchange(out_, &out);
      const std::shared_ptr<Scope> scope = std::exchange(scope_, defined);
      run_loop(s, children, depth + 1);
      scope_ = scope;
      out_ = saved;
      return made(std::move(out));
    });
  }
  const Value loop = Value::loop(state);
  Flow flow = Flow::on;
  for (; state->index < state->items.size() && flow != Flow::stop; ++state->index)
    flow = in_scope(scope_, [&] {
      scope_->set("loop", loop);
      assign(s.targets[0], state->items[state->index]);
      return run(s.bodies[0]);
    });
  if (state->items.empty() && s.bodies.size() > 1) in_scope(scope_, [&] { return run(s.bodies[1]); });
}

void Interpreter::run_assign(const Statement& s) {
  if (s.expression) return assign(s.targets[0], evaluate(*s.expression));
  const Value body = in_scope(scope_, [&] { return made(captured(s.bodies[0])); });
  assign(s.targets[0], s.filter ? apply_filter(*s.filter, &body) : body);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const List items = value.items();
    if (items.size() != target.parts.size())
      throw Fault{fmt::format("{} values are assigned to {} names", items.size(), target.parts.size()), {}};
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->set(target.name, value);
  const Value object = look_up(target.name);
  if (object.kind() != Value::Kind::name_space)
    throw Fault{fmt::format("'{}.{}' cannot be assigned to: '{}' is no namespace", target.name,
                            target.attribute, target.name),
                "make it with namespace()"};
  if (target.attribute.starts_with('_'))
    throw Fault{fmt::format("a namespace has no attribute '{}': names that begin with '_' are refused",
                            target.attribute),
                {}};
  object.variables().set(Value::text(target.attribute), value);
}

Value Interpreter::make_macro(const Statement& s, std::string name) {
  const std::shared_ptr<Scope> defined = scope_;
  with_functions_.push_back(defined);
  charge(100);  // the scope lives as long as the interpreter
  return Value::function(
      name, [this, &s, defined, name](Interpreter&, Arguments& a) { return run_macro(s, defined, a, name); });
}

void Interpreter::define_macro(const Statement& s) {
  scope_->set(s.text, make_macro(s, s.text));
}

Value Interpreter::run_macro(const Statement& s, const std::shared_ptr<Scope>& defined, Arguments& a,
                             const std::string& name) {
  if (calls_ >= limits_.calls)
    throw Fault{fmt::format("macros call each other more than {} deep", limits_.calls), {}};
  ++calls_;
  struct Leave {
    int& calls;
    ~Leave() { --calls; }
  };
  const Leave leave{calls_};
  if (a.positional.size() > s.parameters.size() && !s.takes_varargs)
    throw Fault{fmt::format("the macro '{}' takes {} arguments, found {}", name, s.parameters.size(),
                            a.positional.size()),
                {}};
  return in_scope(defined, [&] {
    Dict others;
    for (const auto& [key, value] : a.named) {
      const bool known = std::any_of(s.parameters.begin(), s.parameters.end(),
                                     [&](const Parameter& p) { return p.name == key; });
      if (key == "caller")
        scope_->set("caller", value);
      else if (!known && !s.takes_kwargs)
        throw Fault{fmt::format("the macro '{}' has no argument '{}'", name, key), {}};
      else if (!known)
        others.set(Value::text(key), value);
    }
    for (size_t i = 0; i < s.parameters.size(); ++i) {
      const Parameter& p = s.parameters[i];
      const Value* given = a.find(i, p.name);
      scope_->set(p.name, given != nullptr ? *given
                          : p.fallback
                              ? evaluate(*p.fallback)
                              : Value::undefined(fmt::format("the parameter '{}' was not provided", p.name)));
    }
    if (s.takes_kwargs) scope_->set("kwargs", Value::dict(std::move(others)));
    if (s.takes_varargs) {
      List more;
      for (size_t i = s.parameters.size(); i < a.positional.size(); ++i) more.push_back(a.positional[i]);
      scope_->set("varargs", Value::tuple(std::move(more)));
    }
    return made(captured(s.bodies[0]));
  });
}

void Interpreter::run_call_block(const Statement& s) {
  const Expression& e = *s.expression;
  const Value callee = evaluate(*e.items[0]);
  Arguments a = arguments(e, 1);
  a.named.emplace_back("caller", make_macro(s, "caller"));
  write(call(callee, a).str());
}

}  // namespace ingot::chat::jinja
