// Named enumerations (enum.h) in JSON: a value is written as its name and read from it, alone, in lists and
// as a part of what nlohmann::json converts. A text that is no name is an Error that lists the names.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/enum.h"

template <ingot::NamedEnum Enum>
struct nlohmann::adl_serializer<Enum> {
  template <class Json>
  static void to_json(Json& json, Enum value) {
    json = ingot::name_of(value);
  }
  template <class Json>
  static void from_json(const Json& json, Enum& value) {
    value = ingot::enum_from<Enum>(json.template get<std::string>(), "known name");
  }
};
