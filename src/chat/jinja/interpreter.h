// Runs a template: statements write to an output, expressions become values. One Interpreter per rendering,
// used by one thread; the template's tree may be shared.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/limits.h"
#include "chat/jinja/syntax.h"
#include "chat/jinja/value.h"

namespace ingot::chat::jinja {

/// Variables of a block; a name that is not here is looked for in `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  void set(std::string_view name, Value value);
};

class Interpreter {
 public:
  /// `name` is the template's in messages; `now` is what strftime_now tells, in Unix seconds.
  Interpreter(std::string name, const Limits& limits, int64_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// The rendering with these variables. Errors: the template's faults with line and column; limits.
  Text render(const Statements& statements, std::vector<std::pair<std::string, Value>> variables);

  // For the functions of builtins.h.
  void charge(int64_t steps);  ///< Fault when the limit of steps is passed
  Value made(Text text);       ///< a text as value, which costs steps; Fault when it is too long
  Value made_list(List list, Origin origin = 0);
  Value call(const Value& function, Arguments& arguments);
  Value filter(std::string_view name, const Value& input, Arguments& arguments);
  bool test(std::string_view name, const Value& input, Arguments& arguments);
  int64_t now() const { return now_; }

  // operators.cpp
  Value attribute(const Value& object, std::string_view name);
  Value subscript(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& begin, const Value& end, const Value& step);
  Value arithmetic(std::string_view op, const Value& left, const Value& right);
  Value concatenate(const List& parts);
  bool compare(std::string_view op, const Value& left, const Value& right);

 private:
  class Depth;
  enum class Flow : uint8_t { on, stop, next };

  // statements.cpp
  Flow run(const Statements& statements);
  Flow execute(const Statement& s);
  Flow run_branch(const Statement& s);
  void run_loop(const Statement& s, const Value& items, int64_t depth);
  List loop_items(const Statement& s, const Value& items);
  void run_assign(const Statement& s);
  void define_macro(const Statement& s);
  Value make_macro(const Statement& s, std::string name);
  Value run_macro(const Statement& s, const std::shared_ptr<Scope>& defined, Arguments& arguments,
                  const std::string& name);
  void run_call_block(const Statement& s);
  Text captured(const Statements& statements);
  void assign(const Target& target, const Value& value);
  void write(const Text& text);
  template <class Body>
  auto in_scope(std::shared_ptr<Scope> parent, Body&& body);

  // expressions.cpp
  Value evaluate(const Expression& e);
  Value evaluate_inner(const Expression& e);
  Value look_up(const std::string& name) const;
  Value compare_chain(const Expression& e);
  Value call_expression(const Expression& e);
  Value apply_filter(const Expression& e, const Value* input);
  Value apply_test(const Expression& e);
  Arguments arguments(const Expression& e, size_t first);
  List all(const Expression& e);

  const std::string name_;
  const Limits& limits_;
  const int64_t now_;
  int64_t steps_ = 0;
  int depth_ = 0, calls_ = 0;
  std::shared_ptr<Scope> globals_, scope_;
  std::vector<std::shared_ptr<Scope>> with_functions_;  // hold macros that hold them: emptied at the end
  Text* out_ = nullptr;
};

}  // namespace ingot::chat::jinja
