// Names of enumerations. A table beside each enum is the only statement of its names:
//
//   enum class Decay { cosine, linear };
//   constexpr auto enum_names(Decay) {
//     return names_in_order<Decay>("cosine", "linear");
//   }
//   name_of(Decay::linear);              // "linear"
//   enum_from<Decay>("linear", "decay")  // Decay::linear; for another text an Error that lists the names
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace ingot {

template <class Enum>
struct EnumName {
  Enum value;
  const char* name;
};

/// The table of an enum whose values are 0, 1, 2, ...: their names in that order.
template <class Enum, class... Names>
constexpr auto names_in_order(Names... names) {
  int value = 0;
  return std::array<EnumName<Enum>, sizeof...(Names)>{EnumName<Enum>{static_cast<Enum>(value++), names}...};
}

template <class Enum>
concept NamedEnum = requires {
  enum_names(Enum{});
};

/// Number of values of the enum.
template <NamedEnum Enum>
inline constexpr size_t enum_count = enum_names(Enum{}).size();

template <NamedEnum Enum>
constexpr const char* name_of(Enum value) {
  for (const EnumName<Enum>& entry : enum_names(Enum{}))
    if (entry.value == value) return entry.name;
  return "?";
}

[[noreturn]] void refuse_enum(std::string_view text, std::string_view what, const std::string& names);

/// The value of that name; otherwise an Error that says what the text should be and lists the names.
template <NamedEnum Enum>
Enum enum_from(std::string_view text, std::string_view what) {
  std::string names;
  for (const EnumName<Enum>& entry : enum_names(Enum{})) {
    if (text == entry.name) return entry.value;
    names += names.empty() ? entry.name : std::string(", ") + entry.name;
  }
  refuse_enum(text, what, names);
}

}  // namespace ingot
