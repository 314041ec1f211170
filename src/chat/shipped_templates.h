// The chat templates that come with the program.
#pragma once
#include <span>
#include <string_view>

namespace ingot::chat {

struct ShippedTemplate {
  std::string_view name;         ///< "chatml-think"
  std::string_view source;       ///< Jinja
  std::string_view end_of_turn;  ///< the token that ends a turn
};

std::span<const ShippedTemplate> shipped_templates();

}  // namespace ingot::chat
