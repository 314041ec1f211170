// The filters, tests, methods and global functions that templates have, each by its name in Jinja or Python.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/interpreter.h"

namespace ingot::chat::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& input, Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value& input, Arguments&);

/// Null if there is none of this name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
std::string filter_names();
std::string test_names();

// Parts of the table of filters.
FilterFunction find_sequence_filter(std::string_view name);
std::string sequence_filter_names();

/// The method of a string, list or dict as a function bound to it; undefined if there is none of this name.
/// Methods that would change the object fault when they are called.
Value find_method(const Value& object, std::string_view name);

/// range, namespace, dict, cycler, joiner, raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> global_functions();

/// json.dumps(value, ensure_ascii, indent, separators, sort_keys) of Python.
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  bool lines = false;  ///< an indentation was given
  Text indent;
  std::string item_separator = ", ", key_separator = ": ";
};
Text to_json(const Value& value, const JsonStyle& style);

/// Python's `format % arguments` and format.format(...): what templates use of them; Fault names the rest.
Text format_percent(const Text& format, const Value& arguments);
Text format_braces(const Text& format, Arguments& arguments);

/// raise_exception was called: the template refuses the conversation.
struct Refusal {
  std::string message;
};

}  // namespace ingot::chat::jinja
