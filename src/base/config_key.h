// What the fields of a config struct (config.h) say of themselves, and the base of those that visit them.
#pragma once
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/range.h"

namespace ingot {

namespace config_detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
inline constexpr bool is_number = std::is_same_v<T, int64_t> || std::is_same_v<T, double>;
template <class T>
inline constexpr bool is_number<std::vector<T>> = is_number<T>;
template <class T>
inline constexpr bool is_number<std::optional<T>> = is_number<T>;

}  // namespace config_detail

/// What `visit` says of a field beside its value.
struct ConfigKey {
  const char* name;
  const char* doc;
  Range range = {};    ///< of numbers, and of those in a list
  bool fixed = false;  ///< may not change when a run resumes
  bool free = false;   ///< may change all the same where a table around it is fixed
};

/// Base of every visitor: turns what `visit` calls into `Self::field(const ConfigKey&, T& field)`.
template <class Self>
struct FieldVisitor {
  template <class T>
  void operator()(const char* name, T& field, const char* doc) {
    unranged<T>();
    self().field({name, doc}, field);
  }
  template <class T>
  void operator()(const char* name, T& field, const char* doc, const Range& range) {
    ranged<T>();
    self().field({name, doc, range}, field);
  }
  template <class T>
  void fixed(const char* name, T& field, const char* doc) {
    unranged<T>();
    self().field({name, doc, {}, true}, field);
  }
  template <class T>
  void fixed(const char* name, T& field, const char* doc, const Range& range) {
    ranged<T>();
    self().field({name, doc, range, true}, field);
  }
  /// A number that decides nothing of what is computed, such as one that plans count with.
  template <class T>
  void free(const char* name, T& field, const char* doc, const Range& range) {
    ranged<T>();
    self().field({name, doc, range, false, true}, field);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  template <class T>
  static void unranged() {
    static_assert(!config_detail::is_number<T>,
                  "a number states its range: v(name, field, doc, between(1, 8))");
  }
  template <class T>
  static void ranged() {
    static_assert(config_detail::is_number<T>, "only numbers have ranges");
  }
};

}  // namespace ingot
