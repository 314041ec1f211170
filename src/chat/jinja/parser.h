// A template's source as a tree.
#pragma once
#include <string>
#include <string_view>

#include "chat/jinja/limits.h"
#include "chat/jinja/syntax.h"

namespace ingot::chat::jinja {

/// Error with `name`, line and column for what Jinja's grammar does not have, for statements that need other
/// files (include, import, extends, block), and for nesting beyond the limit.
Statements parse_template(std::string_view source, const std::string& name, const Limits& limits);

}  // namespace ingot::chat::jinja
