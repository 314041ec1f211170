// A template's source as tokens: text between tags, with Jinja's rules for white space (trim_blocks and
// lstrip_blocks on, as transformers sets them), and the words inside of tags.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/limits.h"
#include "chat/jinja/syntax.h"

namespace ingot::chat::jinja {

struct Token {
  enum class Kind : uint8_t {
    text,
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    number,
    symbol,
    end
  };
  Kind kind;
  std::string text;  // of a string: its value
  Place place;
};

/// Error with `name`, line and column: an unclosed tag or string, a character that no expression has, a
/// number out of range, a source that is too long.
std::vector<Token> tokenize_template(std::string_view source, const std::string& name, const Limits& limits);

/// Throws the Error of a template: "'name', line 3, column 7: ...".
[[noreturn]] void fail_in_template(const std::string& name, const Place& place, const std::string& message,
                                   const std::string& hint = {});

}  // namespace ingot::chat::jinja
