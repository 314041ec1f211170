// See huggingface_fields.h.
#include "models/huggingface_fields.h"

#include <algorithm>
#include <cmath>

#include "base/config_node.h"
#include "base/error.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

std::string shown_json(const Json& v) {
  std::string text = v.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  return text;
}

/// A list as words: `"silu" or null`.
std::string alternatives(const Json& list) {
  std::string text;
  for (const Json& item : list) text += (text.empty() ? "" : " or ") + shown_json(item);
  return text;
}

}  // namespace

Fields::Fields(Json json, const std::string& path, std::string owner, FieldTable table)
    : json_(std::move(json)), path_(path), owner_(std::move(owner)), table_(std::move(table)) {
  std::vector<std::string> names;
  for (const auto& [name, value] : json_.items()) names.push_back(name);
  for (const std::string& name : names) {
    const FieldRule* rule = find(name);
    if (rule == nullptr) {
      std::vector<std::string> known;
      for (const auto& rules : table_)
        for (const FieldRule& r : rules) known.emplace_back(r.name);
      const std::string near = nearest_name(name, known);
      throw Error(
          fmt::format("'{}': field '{}' is {}, but {} is not known to have it{}", path_, name,
                      shown(name.c_str()), owner_, near.empty() ? "" : fmt::format(" (there is '{}')", near)),
          "if it does not change what the model computes, take it out of the file");
    }
    if (rule->use == FieldUse::one_of) {
      const Json allowed = Json::parse(rule->value);
      require(std::find(allowed.begin(), allowed.end(), json_.at(name)) != allowed.end(), rule->name,
              fmt::format("only {} is implemented for {}{}{}", alternatives(allowed), owner_,
                          *rule->why != 0 ? "; " : "", rule->why));
    }
  }
  for (const std::string& name : names)
    if (const FieldRule* rule = find(name); rule->use == FieldUse::alias) json_[rule->value] = json_.at(name);
  for (const auto& rules : table_)
    for (const FieldRule& r : rules)
      if ((r.use == FieldUse::read || r.use == FieldUse::one_of) && r.value != nullptr && find(r.name) == &r)
        defaults_[r.name] = r.use == FieldUse::read ? Json::parse(r.value) : Json::parse(r.value).front();
}

const FieldRule* Fields::find(const std::string& name) const {
  for (const auto& rules : table_)
    for (const FieldRule& rule : rules)
      if (name == rule.name) return &rule;
  return nullptr;
}

const Json& Fields::value(const char* name) const {
  if (const auto found = json_.find(name); found != json_.end()) return *found;
  const FieldRule* rule = find(name);
  INGOT_CHECK(rule != nullptr && (rule->use == FieldUse::read || rule->use == FieldUse::one_of),
              "no rule reads '{}' of {}", name, owner_);
  const auto it = defaults_.find(name);
  if (it == defaults_.end()) fail("'{}': field '{}' is missing", path_, name);
  return *it;
}

std::string Fields::shown(const char* name) const {
  return json_.contains(name) ? shown_json(json_.at(name)) : "absent";
}

void Fields::refuse(const char* name, const std::string& why) const {
  fail("'{}': field '{}' is {}: {}", path_, name, shown(name), why);
}

void Fields::require(bool ok, const char* name, const std::string& why) const {
  if (!ok) refuse(name, why);
}

int64_t Fields::integer(const char* name, int64_t least, int64_t most) const {
  const Json& v = value(name);
  const bool fits = v.is_number_integer() && (!v.is_number_unsigned() || v.get<uint64_t>() <= INT64_MAX);
  const int64_t n = fits ? v.get<int64_t>() : 0;
  require(fits && n >= least && n <= most, name,
          fmt::format("expected an integer from {} to {}", least, most));
  return n;
}

int64_t Fields::integer_or(const char* name, int64_t otherwise, int64_t most) const {
  return is_null(name) ? otherwise : integer(name, 1, most);
}

double Fields::number(const char* name, double low, double high) const {
  const Json& v = value(name);
  const double x = v.is_number() ? v.get<double>() : NAN;
  require(x >= low && x <= high, name, fmt::format("expected a number from {} to {}", low, high));
  return x;
}

bool Fields::flag(const char* name) const {
  const Json& v = value(name);
  require(v.is_boolean(), name, "expected true or false");
  return v.get<bool>();
}

std::string Fields::text(const char* name) const {
  const Json& v = value(name);
  require(v.is_string(), name, "expected a string");
  return v.get<std::string>();
}

Fields Fields::table(const char* name, FieldTable rules) const {
  require(value(name).is_object(), name, "expected a table");
  return Fields(value(name), path_, fmt::format("{} of {}", name, owner_), std::move(rules));
}

}  // namespace ingot
