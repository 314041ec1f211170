// The syntax tree of a template. Source: Jinja's grammar as its documentation and behaviour give it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/value.h"

namespace ingot::chat::jinja {

struct Place {
  int line = 1, column = 1;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
using NamedExpressions = std::vector<std::pair<std::string, ExpressionPtr>>;

struct Expression {
  enum class Kind : uint8_t {
    constant,      // value
    name,          // name
    list,          // items
    tuple,         // items
    dict,          // items: key, value, key, value, ...
    attribute,     // items[0].name
    subscript,     // items[0][items[1]]
    slice,         // items[0][items[1] : items[2] : items[3]]; absent ones are null
    call,          // items[0](items[1..], named)
    filter,        // name; items[0] is the input, null inside {% filter %}
    test,          // name; items[0] is the input
    negated,       // not items[0]
    minus,         // - items[0]
    plus,          // + items[0]
    both,          // items[0] and items[1]
    either,        // items[0] or items[1]
    choice,        // items[0] if items[1] else items[2] (null: undefined)
    comparison,    // items[0] operators[0] items[1] operators[1] items[2] ...
    arithmetic,    // items[0] name items[1]; + - * / // % **
    concatenation  // items joined as strings: ~
  };
  Kind kind;
  Place place;
  int depth = 1;  // of the tree below, this included
  std::string name;
  Value value;
  std::vector<ExpressionPtr> items;
  NamedExpressions named;
  std::vector<std::string> operators;
  ExpressionPtr more_positional, more_named;  // *args, **kwargs of a call
};

/// What `for` and `set` assign to: a name, a namespace's attribute, or several targets.
struct Target {
  std::string name, attribute;
  std::vector<Target> parts;
};

struct Statement;
using Statements = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: none
};

struct Statement {
  enum class Kind : uint8_t {
    text,    // text
    print,   // expression
    branch,  // conditions[i] guards bodies[i]; one body more is the else
    loop,    // for target in expression if condition: bodies[0] else bodies[1]
    assign,  // target = expression; without expression: bodies[0] captured, through `filter` if there is one
    macro,   // name(parameters): bodies[0]
    call_block,  // expression is the call; bodies[0] is its caller(parameters)
    filtered,    // bodies[0] through the filter `expression`
    with,        // targets[i] = conditions[i] in bodies[0]
    generation,  // bodies[0]
    stop_loop,
    next_item
  };
  Kind kind;
  Place place;
  std::string text;
  ExpressionPtr expression, filter;
  std::vector<ExpressionPtr> conditions;
  std::vector<Statements> bodies;
  std::vector<Target> targets;
  std::vector<Parameter> parameters;
  bool recursive = false;
  bool takes_varargs = false, takes_kwargs = false;  // a macro that uses these names takes any arguments
};

}  // namespace ingot::chat::jinja
