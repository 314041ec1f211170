// What a template may use. Templates come with models from strangers: none may loop, grow or nest without
// end.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ingot::chat::jinja {

struct Limits {
  size_t source_bytes = 1 << 20;
  int depth = 100;            ///< nesting of statements and expressions in the source
  int calls = 50;             ///< macros that call each other, recursive loops
  int64_t steps = 5'000'000;  ///< statements, expressions and items of lists, together
  size_t bytes =
      size_t{64} << 20;  ///< of one text, the output included; texts made on the way count as steps
};

}  // namespace ingot::chat::jinja
