// Values as Python writes them: lm-evaluation-harness's files hold str() of numbers, json.dumps of documents,
// and hashes of both. Pure functions; thread-safe. Internal: it includes the JSON library.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ingot {

using TaskJson = nlohmann::ordered_json;

/// repr(x) of a float: the shortest digits that give x back, "1.0", "1e-07", "inf", "nan".
std::string python_float(double x);
/// str() of a JSON value inside a template: text as it is, True and None, numbers; lists and objects as
/// Python prints them.
std::string python_str(const TaskJson& value);
/// json.dumps(value, ensure_ascii=False), with indent where indent > 0. Text that is not UTF-8 is repaired.
std::string python_json(const TaskJson& value, int indent = 0);
/// text.strip(): without white space at both ends, as Unicode counts it.
std::string_view python_strip(std::string_view text);
/// text.rstrip().
std::string_view python_rstrip(std::string_view text);
/// Characters, as len() counts them.
int64_t characters(std::string_view text);

}  // namespace ingot
