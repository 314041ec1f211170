// See json_fields.h.
#include "serve/json_fields.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "serve/api_error.h"

namespace ingot::serve {

using Json = nlohmann::json;

namespace {

constexpr int64_t kMaxValues = 1 << 20;

/// Values of a JSON text, at most: each stands behind one of ',', '[', '{' outside a string, or is the first.
/// The library's own callback takes quadratic time in an array of objects.
int64_t values_in(std::string_view body) {
  int64_t count = 1;
  bool quoted = false;
  for (size_t i = 0; i < body.size(); ++i)
    if (body[i] == '"')
      quoted = !quoted;
    else if (quoted)
      i += body[i] == '\\' ? 1 : 0;
    else
      count += body[i] == ',' || body[i] == '[' || body[i] == '{' ? 1 : 0;
  return count;
}

}  // namespace

Json parse_body(std::string_view body) {
  try {
    require_shallow_json(body, "body");
    if (values_in(body) > kMaxValues) fail("it has more than {} values", kMaxValues);
    return Json::parse(body);
  } catch (const Json::exception& e) {
    std::string_view why = e.what();
    if (why.starts_with('[')) why.remove_prefix(std::min(why.find(']') + 2, why.size()));
    throw ApiError("the body is not JSON: " + utf8::repair(why));
  } catch (const Error& e) {
    throw ApiError(std::string("the body cannot be read: ") + e.what());
  }
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) {
    text.resize(utf8::valid_prefix(std::string_view(text).substr(0, 37)));
    text += "...";
  }
  return text;
}

JsonFields::JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (object_.is_object()) return;
  const std::string name = where_.empty() ? "the body" : "'" + where_.substr(0, where_.size() - 1) + "'";
  throw ApiError(fmt::format("{} must be a JSON object, found {}", name, shown(object_)), 400,
                 where_.substr(0, where_.empty() ? 0 : where_.size() - 1));
}

void JsonFields::refuse(const std::string& name, const std::string& why) const {
  throw ApiError(fmt::format("'{}{}' {}", where_, name, why), 400, where_ + name);
}

const Json* JsonFields::value(const char* name) {
  read_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> JsonFields::integer(const char* name, const Range& range) {
  const Json* v = value(name);
  if (!v) return std::nullopt;
  // A whole number may be written as 16.0, which many languages do. Beyond 2^63 it is out of every range.
  if (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    refuse(name, fmt::format("must be {}, found {}", range.str(), shown(*v)));
  int64_t number = 0;
  if (v->is_number_integer()) {
    number = v->get<int64_t>();
  } else if (v->is_number_float() && std::abs(v->get<double>()) < 0x1p53 &&
             v->get<double>() == std::trunc(v->get<double>())) {
    number = static_cast<int64_t>(v->get<double>());
  } else {
    refuse(name, fmt::format("must be a whole number, found {}", shown(*v)));
  }
  if (const std::string problem = range.problem(number); !problem.empty()) refuse(name, problem);
  return number;
}

std::optional<double> JsonFields::number(const char* name, const Range& range) {
  const Json* v = value(name);
  if (!v) return std::nullopt;
  if (!v->is_number()) refuse(name, fmt::format("must be a number, found {}", shown(*v)));
  const double number = v->get<double>();
  if (const std::string problem = range.problem(number); !problem.empty()) refuse(name, problem);
  return number;
}

std::optional<bool> JsonFields::boolean(const char* name) {
  const Json* v = value(name);
  if (!v) return std::nullopt;
  if (!v->is_boolean()) refuse(name, fmt::format("must be true or false, found {}", shown(*v)));
  return v->get<bool>();
}

std::optional<std::string> JsonFields::text(const char* name) {
  const Json* v = value(name);
  if (!v) return std::nullopt;
  if (!v->is_string()) refuse(name, fmt::format("must be a text, found {}", shown(*v)));
  return v->get<std::string>();
}

void JsonFields::only(const char* name, std::initializer_list<const char*> allowed, const char* why) {
  const Json* v = value(name);
  if (!v) return;
  for (const char* text : allowed)
    if (*v == Json::parse(text)) return;
  refuse(name, fmt::format("is not supported{}{}: found {}", *why == '\0' ? "" : ": ", why, shown(*v)));
}

void JsonFields::ignore(std::initializer_list<const char*> names) {
  read_.insert(names.begin(), names.end());
}

void JsonFields::done() const {
  for (const auto& [name, v] : object_.items())
    if (!v.is_null() && !read_.contains(name)) {
      const std::string known = name.substr(0, utf8::valid_prefix(std::string_view(name).substr(0, 60)));
      refuse(known, "is no field that this server supports");
    }
}

}  // namespace ingot::serve
