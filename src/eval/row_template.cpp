// See row_template.h.
#include "eval/row_template.h"

#include "base/error.h"

namespace ingot {
namespace {

std::vector<std::string> path_of(const std::string& name, const std::string& text) {
  std::vector<std::string> path(1);
  for (const char c : name) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    if (c == '.' && !path.back().empty())
      path.emplace_back();
    else if (word)
      path.back() += c;
    else
      throw Error(fmt::format("the text '{}' has {{{{{}}}}}", text, name),
                  "between {{ and }} stands the name of a field, as {{question}} or {{choices.0}}");
  }
  if (path.back().empty()) fail("the text '{}' has {{{{{}}}}}, which names no field", text, name);
  return path;
}

std::string names_of_fields(const TaskJson& row) {
  std::string names;
  for (auto it = row.begin(); it != row.end(); ++it) names += (names.empty() ? "" : ", ") + it.key();
  return names.empty() ? "none" : names;
}

}  // namespace

RowTemplate::RowTemplate(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = text.find("{{", at);
    if (open == text.npos) break;
    const size_t close = text.find("}}", open);
    if (close == text.npos) throw Error(fmt::format("the text '{}' opens {{{{ and does not close it", text));
    if (open > at) parts_.push_back({text.substr(at, open - at), {}});
    const std::string name(python_strip(std::string_view(text).substr(open + 2, close - open - 2)));
    parts_.push_back({"", path_of(name, text)});
    at = close + 2;
  }
  if (at < text.size()) parts_.push_back({text.substr(at), {}});
}

const TaskJson& row_field(const TaskJson& row, const std::vector<std::string>& path,
                          const std::string& where) {
  const TaskJson* value = &row;
  std::string so_far;
  for (const std::string& name : path) {
    const TaskJson* next = nullptr;
    if (value->is_object() && value->contains(name)) next = &(*value)[name];
    if (value->is_array() && !name.empty() && name.size() < 10 &&
        name.find_first_not_of("0123456789") == name.npos && std::stoul(name) < value->size())
      next = &(*value)[std::stoul(name)];
    if (next == nullptr) {
      const std::string inside = so_far.empty() ? "the row" : "'" + so_far + "'";
      throw Error(fmt::format("{}: {} has no field '{}'", where, inside, name),
                  value->is_object()
                      ? "its fields: " + names_of_fields(*value)
                      : fmt::format("it is {}", value->is_array() ? fmt::format("a list of {}", value->size())
                                                                  : std::string(value->type_name())));
    }
    value = next;
    so_far += (so_far.empty() ? "" : ".") + name;
  }
  return *value;
}

std::string RowTemplate::render(const TaskJson& row, const std::string& where) const {
  std::string out;
  for (const Part& part : parts_)
    out += part.path.empty() ? part.text : python_str(row_field(row, part.path, where));
  return out;
}

}  // namespace ingot
