// The values of templates: Python's, as far as JSON and templates need them. A value knows its origin
// (text.h), strings by the byte. Values are shared and never change, but namespaces and loops.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "chat/jinja/text.h"

namespace ingot::chat::jinja {

class Interpreter;
class Value;
using List = std::vector<Value>;

/// What goes wrong in an operation; the interpreter adds the place and makes it an Error.
struct Fault {
  std::string message, hint;
};

/// Arguments of a call or filter: positional ones, then those with names.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Argument `index`, or the one called `name`, or null. Taken ones are counted; refuse_others() faults for
  /// the rest.
  const Value* find(size_t index, std::string_view name);
  const Value& need(size_t index, std::string_view name);
  void refuse_others(std::string_view callee) const;

 private:
  size_t taken_ = 0;  // positional: the largest index + 1
  std::vector<std::string> used_;
};

struct Function {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
};

struct Dict;
struct LoopState;

class Value {
 public:
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    number,
    text,
    list,
    tuple,
    dict,
    name_space,
    function,
    loop
  };

  Value() = default;                         ///< undefined
  static Value undefined(std::string what);  ///< `what` begins the message of its use: "'x' is undefined"
  static Value none(Origin origin = 0);
  static Value boolean(bool b, Origin origin = 0);
  static Value integer(int64_t i, Origin origin = 0);
  static Value number(double d, Origin origin = 0);
  static Value text(Text t);
  static Value text(std::string_view s, Origin origin = 0) { return text(Text(s, origin)); }
  static Value list(List items, Origin origin = 0);
  static Value tuple(List items, Origin origin = 0);
  static Value dict(Dict items, Origin origin = 0);
  static Value name_space(std::shared_ptr<Dict> variables);
  static Value function(std::string name, std::function<Value(Interpreter&, Arguments&)> call);
  static Value loop(std::shared_ptr<LoopState> state);
  /// Everything in it gets `origin`.
  static Value from_json(const nlohmann::ordered_json& json, Origin origin);

  Kind kind() const { return kind_; }
  Origin origin() const { return origin_; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_dict() const { return kind_ == Kind::dict; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::number; }

  const Text& as_text() const { return *std::get<std::shared_ptr<const Text>>(data_); }
  const List& as_list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  Dict& variables() const { return *std::get<std::shared_ptr<Dict>>(data_); }  ///< of a namespace
  const Function& as_function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  LoopState& as_loop() const { return *std::get<std::shared_ptr<LoopState>>(data_); }
  bool as_boolean() const { return std::get<bool>(data_); }
  int64_t as_integer() const;  ///< of an integer or boolean
  double as_number() const;    ///< of any number
  const std::string& why_undefined() const;
  const void* identity() const;  ///< address of what is shared; null for plain values

  /// Python's type name, for messages: "str", "dict", ...
  const char* type_name() const;
  /// Truth as Python has it.
  bool truth() const;
  /// str(value): what a template prints.
  Text str() const;
  /// repr(value).
  Text repr() const;
  /// value == other.
  bool equals(const Value& other) const;
  /// value < other; Fault for types without an order.
  bool less(const Value& other) const;
  /// len(value); Fault.
  int64_t length() const;
  /// What `for` sees, as a list; Fault if it cannot be iterated.
  List items() const;

 private:
  using Data = std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const std::string>,
                            std::shared_ptr<const Text>, std::shared_ptr<const List>, std::shared_ptr<Dict>,
                            std::shared_ptr<const Function>, std::shared_ptr<LoopState>>;
  Value(Kind kind, Data data, Origin origin = 0) : kind_(kind), origin_(origin), data_(std::move(data)) {}

  Kind kind_ = Kind::undefined;
  Origin origin_ = 0;
  Data data_;
};

/// Keys in their order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);
};

/// The variable `loop`.
struct LoopState {
  List items;
  size_t index = 0;
  int64_t depth = 1;
  Value changed;  ///< last arguments of loop.changed()
  Value recurse;  ///< of a recursive loop: called with the children
};

/// repr(float): the shortest digits that read back, as Python lays them out.
std::string python_number(double d);

}  // namespace ingot::chat::jinja
