// Access to a config.json by a table of its fields: one is read with its default, is known not to change what
// the model computes, or has one of a few values. Everything else is refused by name, so that nothing that
// another program would heed is passed over in silence.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace ingot {

enum class FieldUse : uint8_t {
  read,     ///< `value` is the default, as JSON; nullptr: the field must be there
  ignored,  ///< changes nothing in the forward pass
  one_of,   ///< `value` is the JSON list of what it may be, the default first
  alias     ///< another name of the field `value`, over which it wins
};

struct FieldRule {
  const char* name;
  FieldUse use = FieldUse::ignored;
  const char* value = nullptr;
  const char* why = "";  ///< one_of: what the other values mean
};

/// Rules in the order of precedence: those of a family, then those that families share.
using FieldTable = std::vector<std::span<const FieldRule>>;

/// The fields of one JSON object. Errors name the file, the field, its value and what was expected. Not
/// thread-safe; the path must outlive it.
class Fields {
 public:
  /// Applies aliases, then refuses fields that no rule knows and values that no rule allows. `owner`: whose
  /// fields they are, for messages.
  Fields(nlohmann::json json, const std::string& path, std::string owner, FieldTable table);

  /// The value of the file, or the default. Fails if the field must be there and is not.
  const nlohmann::json& value(const char* name) const;
  bool has(const char* name) const { return json_.contains(name); }
  bool is_null(const char* name) const { return value(name).is_null(); }

  /// An integer within a range; sizes beyond 2^24 describe no model that exists, and would overflow counts.
  int64_t integer(const char* name, int64_t least = 1, int64_t most = int64_t{1} << 24) const;
  /// The same, or `otherwise` for null.
  int64_t integer_or(const char* name, int64_t otherwise, int64_t most = int64_t{1} << 24) const;
  /// A number from `low` to `high`.
  double number(const char* name, double low, double high) const;
  bool flag(const char* name) const;
  std::string text(const char* name) const;
  /// The table inside, under its own rules.
  Fields table(const char* name, FieldTable rules) const;

  void require(bool ok, const char* name, const std::string& why) const;
  [[noreturn]] void refuse(const char* name, const std::string& why) const;

 private:
  const FieldRule* find(const std::string& name) const;
  std::string shown(const char* name) const;
  nlohmann::json json_, defaults_;
  std::string path_, owner_;
  FieldTable table_;
};

/// The fields of `model_type`'s config.json in transformers, with its defaults. Error that lists the families
/// for one that is not known.
FieldTable huggingface_fields(const std::string& model_type, const std::string& path);
/// The fields of rope_parameters and rope_scaling.
FieldTable huggingface_rope_fields();

}  // namespace ingot
