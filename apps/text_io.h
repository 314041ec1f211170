// Text that a person names on the command line, a file or standard input as "-", and JSON for standard
// output.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

/// The bytes of the file, or of standard input for "-".
std::string read_text_input(const std::string& path);

/// Drops one newline at the end (and a carriage return before it), which editors and `echo` put there.
void drop_last_newline(std::string& text);

/// The value as JSON; bytes that are not UTF-8 become U+FFFD. `indent` spaces a level; -1: on one line.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace ingot
