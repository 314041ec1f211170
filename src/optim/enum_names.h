// From a config's word to an enum value, for enums that have a name_of().
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ingot {

/// The value of `all` with that name, or an Error that lists the names.
template <class Enum, size_t n>
Enum value_named(const std::array<Enum, n>& all, std::string_view what, std::string_view name) {
  std::string names;
  for (const Enum value : all) {
    if (name == name_of(value)) return value;
    names += names.empty() ? "" : ", ";
    names += name_of(value);
  }
  throw Error(fmt::format("'{}' is not a {}", name, what), "use one of: " + names);
}

}  // namespace ingot
