// Config structs declared once. A struct lists its fields in `visit`; reading TOML, overrides, unknown-key
// errors, printing with comments, JSON and differences all follow from that list. Docs: docs/config.md.
//
//   enum class Decay { cosine, linear };
//   constexpr auto enum_names(Decay) {
//     return names_in_order<Decay>("cosine", "linear");
//   }
//   struct OptimizerConfig {
//     double lr = 3e-4;
//     Decay decay = Decay::cosine;
//     template <class Visitor> void visit(Visitor& v) {
//       v("lr", lr, "peak learning rate", positive(1e6));  // a number states its range (base/range.h)
//       v.fixed("decay", decay, "shape of the decay");     // may not change when a run resumes
//     }
//     void validate(ConfigErrors& errors) const {  // optional: what ranges cannot say, once all are right
//       if (decay == Decay::linear && lr > 1) errors.add("lr", "{} is too much for linear decay", lr);
//     }
//   };
//   auto config = load_config<OptimizerConfig>("recipe.toml", {"--lr=1e-3"});
//
// Field types: bool, int64_t, double, std::string, an enum with enum_names, a config struct, std::vector of
// those (of structs: [[name]] tables), std::optional of those (unset reads and prints as "none"). A field
// that the file does not name keeps the value its struct was made with. A field with numbers does not compile
// without a range; what lies outside it is an error with the file's line, key, bound and value.
#pragma once
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/config_key.h"
#include "base/config_node.h"
#include "base/enum.h"

namespace ingot {

/// Messages collected while a configuration is read and validated, so that a person sees all of them at once.
/// An object looks at one struct of the tree; children share the list.
class ConfigErrors {
 public:
  explicit ConfigErrors(const ConfigNode& root);
  /// `field` is relative to the struct that is validated ("lr", "model.heads", "phases.0.steps"); "" is the
  /// struct.
  template <class... Args>
  void add(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
    add_text(field, fmt::format(format, std::forward<Args>(args)...));
  }
  void add_text(std::string_view field, const std::string& message);
  ConfigErrors child(const ConfigNode& node, std::string_view name) const;
  /// Of a field that may not stand in the tree.
  ConfigErrors child(std::string_view name) const;
  size_t count() const;
  /// Throws one Error that lists every message.
  void throw_if_any() const;

  void mistyped(const ConfigNode& node, const char* expected);
  void unknown_keys(const ConfigNode& table, const std::vector<std::string>& known);

 private:
  struct List;
  ConfigErrors(const ConfigNode* node, std::string path, std::shared_ptr<List> list);
  const ConfigNode* node_;
  std::string path_;
  std::shared_ptr<List> list_;
};

namespace config_detail {

template <class T>
struct NullVisitor : FieldVisitor<NullVisitor<T>> {
  template <class F>
  void field(const ConfigKey&, F&) {}
};
template <class T>
concept Struct = requires(T& t, NullVisitor<T>& v) {
  t.visit(v);
};

// Leaves: false after adding a message.
bool read_leaf(const ConfigNode& node, bool& out, ConfigErrors& errors);
bool read_leaf(const ConfigNode& node, int64_t& out, ConfigErrors& errors);  // any value, as the next one
bool read_leaf(const ConfigNode& node, double& out, ConfigErrors& errors);
bool read_leaf(const ConfigNode& node, std::string& out, ConfigErrors& errors);
int read_enum(const ConfigNode& node, const std::vector<std::string>& names,
              ConfigErrors& errors);  // -1: error
ConfigNode leaf(bool value);
ConfigNode leaf(int64_t value);
ConfigNode leaf(double value);
ConfigNode leaf(const std::string& value);
bool is_none(const ConfigNode& node);
const std::vector<ConfigNode>& elements(const ConfigNode& node, ConfigErrors& errors);

template <class T>
void check_value(T& value, const Range& range, ConfigErrors errors);

// Adds what is wrong with the fields of one struct that no tree gave.
struct Checker : FieldVisitor<Checker> {
  const ConfigErrors& errors;
  explicit Checker(const ConfigErrors& list) : errors(list) {}
  template <class T>
  void field(const ConfigKey& key, T& field) {
    check_value(field, key.range, errors.child(key.name));
  }
};

template <class T>
void check_value(T& value, const Range& range, ConfigErrors errors) {
  if constexpr (is_optional<T>) {
    if (value) check_value(*value, range, errors);
  } else if constexpr (is_vector<T>) {
    if constexpr (is_number<T> || Struct<typename T::value_type>)
      for (size_t i = 0; i < value.size(); ++i) check_value(value[i], range, errors.child(std::to_string(i)));
  } else if constexpr (Struct<T>) {
    const size_t before = errors.count();
    Checker checker(errors);
    value.visit(checker);
    if constexpr (requires { value.validate(errors); })
      if (errors.count() == before) value.validate(errors);
  } else if constexpr (is_number<T>) {
    if (const std::string problem = range.problem(value); !problem.empty()) errors.add_text("", problem);
  }
}

template <class T>
bool read_value(const ConfigNode& node, const Range& range, T& out, ConfigErrors errors);

// Reads the fields of one struct from a table.
struct Reader : FieldVisitor<Reader> {
  const ConfigNode& table;
  ConfigErrors& errors;
  std::vector<std::string> known;
  template <class T>
  void field(const ConfigKey& key, T& field) {
    known.emplace_back(key.name);
    if (const ConfigNode* node = table.find(key.name))
      read_value(*node, key.range, field, errors.child(*node, key.name));
  }
};

template <class Enum>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& entry : enum_names(Enum{})) names.emplace_back(entry.name);
  return names;
}

template <class T>
bool read_value(const ConfigNode& node, const Range& range, T& out, ConfigErrors errors) {
  const size_t before = errors.count();
  if constexpr (is_optional<T>) {
    if (is_none(node)) {
      out.reset();
    } else {
      typename T::value_type value{};
      if (out) value = *out;
      if (read_value(node, range, value, errors)) out = std::move(value);
    }
  } else if constexpr (is_vector<T>) {
    out.clear();
    const std::vector<ConfigNode>& items = elements(node, errors);
    for (size_t i = 0; i < items.size(); ++i) {
      typename T::value_type value{};
      read_value(items[i], range, value, errors.child(items[i], std::to_string(i)));
      out.push_back(std::move(value));
    }
  } else if constexpr (Struct<T>) {
    if (node.kind != ConfigNode::Kind::table) {
      errors.mistyped(node, "a table of keys");
      return false;
    }
    Reader reader{{}, node, errors, {}};
    out.visit(reader);
    errors.unknown_keys(node, reader.known);
    if constexpr (requires { out.validate(errors); })
      if (errors.count() == before) out.validate(errors);
  } else if constexpr (std::is_enum_v<T>) {
    const int index = read_enum(node, names_of<T>(), errors);
    if (index >= 0) out = enum_names(T{})[static_cast<size_t>(index)].value;
  } else {
    if (read_leaf(node, out, errors)) check_value(out, range, errors);
  }
  return errors.count() == before;
}

template <class T>
ConfigNode write_value(T& value);

// Writes the fields of one struct into a table.
struct Writer : FieldVisitor<Writer> {
  ConfigNode table;
  template <class T>
  void field(const ConfigKey& key, T& field) {
    ConfigNode node = write_value(field);
    node.name = key.name;
    node.doc = key.doc + node.doc;
    if (is_number<T>) node.doc += " (" + key.range.str() + ")";
    node.fixed = key.fixed, node.free = key.free;
    table.items.push_back(std::move(node));
  }
};

template <class T>
ConfigNode write_value(T& value) {
  if constexpr (is_optional<T>) {
    if (value) return write_value(*value);
    ConfigNode node = leaf(std::string("none"));
    if constexpr (std::is_enum_v<typename T::value_type>) {
      typename T::value_type any{};
      node.doc = write_value(any).doc;
    }
    return node;
  } else if constexpr (is_vector<T>) {
    ConfigNode node;
    node.kind = ConfigNode::Kind::array;
    for (auto&& item : value) {
      typename T::value_type copy = item;  // vector<bool> has no references
      node.items.push_back(write_value(copy));
    }
    return node;
  } else if constexpr (Struct<T>) {
    Writer writer;
    value.visit(writer);
    return std::move(writer.table);
  } else if constexpr (std::is_enum_v<T>) {
    ConfigNode node = leaf(std::string(name_of(value)));
    for (const auto& name : names_of<T>()) node.doc += (node.doc.empty() ? " (" : " | ") + name;
    node.doc += ")";
    return node;
  } else {
    return leaf(std::as_const(value));
  }
}

}  // namespace config_detail

/// The complete tree of a config struct: every field with its doc string, in declared order.
template <class T>
ConfigNode to_node(T config) {
  return config_detail::write_value(config);
}

/// Fills a config struct from a tree. `defaults` is what absent keys keep. One Error with every message:
/// unknown keys with the nearest known name, wrong types with expected and found, and what validate() objects
/// to.
template <class T>
T read_config(const ConfigNode& tree, T defaults) {
  ConfigErrors errors(tree);
  config_detail::read_value(tree, {}, defaults, errors);
  errors.throw_if_any();
  return defaults;
}
template <class T>
T read_config(const ConfigNode& tree) {
  return read_config(tree, T());
}

/// Adds what is wrong with a config that no tree gave: fields outside their ranges, at any depth, and, where
/// there are none, what validate() objects to.
template <class T>
void check_config(T config, const ConfigErrors& errors) {
  config_detail::check_value(config, {}, errors);
}

/// Recipe file (none when `path` is empty), then overrides in order ("--section.key=value"), then
/// read_config.
template <class T>
T load_config(const std::string& path, const std::vector<std::string>& overrides, T defaults) {
  ConfigNode tree = path.empty() ? ConfigNode{} : load_toml(path);
  const ConfigNode known = to_node(defaults);
  for (const auto& argument : overrides) apply_override(tree, known, argument);
  return read_config(tree, std::move(defaults));
}
template <class T>
T load_config(const std::string& path, const std::vector<std::string>& overrides = {}) {
  return load_config(path, overrides, T());
}

/// The complete resolved configuration as a recipe: every key, with comments; reads back to the same config.
template <class T>
std::string print_config(const T& config) {
  return to_toml(to_node(config));
}

}  // namespace ingot
