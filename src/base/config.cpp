// See config.h: collected messages and the leaves of the reader and the writer.
#include "base/config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {

using Kind = ConfigNode::Kind;

struct ConfigErrors::List {
  std::string source;
  std::vector<std::string> messages;
};

ConfigErrors::ConfigErrors(const ConfigNode& root)
    : ConfigErrors(&root, "", std::make_shared<List>(List{root.where, {}})) {}
ConfigErrors::ConfigErrors(const ConfigNode* node, std::string path, std::shared_ptr<List> list)
    : node_(node), path_(std::move(path)), list_(std::move(list)) {}

ConfigErrors ConfigErrors::child(const ConfigNode& node, std::string_view name) const {
  return {&node, path_.empty() ? std::string(name) : path_ + "." + std::string(name), list_};
}

ConfigErrors ConfigErrors::child(std::string_view name) const {
  static const ConfigNode absent;
  const ConfigNode* node = node_->find(name);
  return child(node != nullptr ? *node : absent, name);
}

size_t ConfigErrors::count() const {
  return list_->messages.size();
}

void ConfigErrors::add_text(std::string_view field, const std::string& message) {
  // The most exact place known: the field where the file names it, else the nearest table around it.
  const ConfigNode* node = node_;
  for (std::string_view rest = field; !rest.empty();) {
    const auto part = rest.substr(0, rest.find('.'));
    rest = part.size() < rest.size() ? rest.substr(part.size() + 1) : std::string_view{};
    const ConfigNode* next = node->find(part);
    if (node->kind == Kind::array && !part.empty() && part.find_first_not_of("0123456789") == part.npos &&
        part.size() < 10 && std::stoul(std::string(part)) < node->items.size())
      next = &node->items[std::stoul(std::string(part))];
    if (next == nullptr) break;
    node = next;
  }
  std::string path = path_;
  if (!field.empty()) path += (path.empty() ? "" : ".") + std::string(field);
  std::string text = node->where;
  if (!path.empty()) text += (text.empty() ? "" : ": ") + path;
  list_->messages.push_back((text.empty() ? "" : text + ": ") + message);
}

void ConfigErrors::throw_if_any() const {
  const auto& messages = list_->messages;
  if (messages.empty()) return;
  std::string text = messages[0];
  if (messages.size() > 1) {
    text = fmt::format("{} errors in the configuration:", messages.size());
    for (const auto& message : messages) text += "\n  " + message;
  }
  throw Error(text, "--print-config lists every key with its default and meaning");
}

void ConfigErrors::mistyped(const ConfigNode& node, const char* expected) {
  add("", "expected {}, found {}", expected, describe_value(node));
}

void ConfigErrors::unknown_keys(const ConfigNode& table, const std::vector<std::string>& known) {
  for (const auto& item : table.items) {
    if (std::find(known.begin(), known.end(), item.name) != known.end()) continue;
    const std::string nearest = nearest_name(item.name, known);
    std::string message = "unknown key";
    if (!nearest.empty()) {
      message += fmt::format("; did you mean '{}'?", nearest);
    } else {
      message += "; known here:";
      for (const auto& name : known) message += " " + name;
    }
    child(item, item.name).add_text("", message);
  }
}

namespace config_detail {

bool read_leaf(const ConfigNode& node, bool& out, ConfigErrors& errors) {
  if (node.kind != Kind::boolean) {
    errors.mistyped(node, "true or false");
    return false;
  }
  out = node.boolean;
  return true;
}

bool read_leaf(const ConfigNode& node, int64_t& out, ConfigErrors& errors) {
  if (node.kind == Kind::integer) {
    out = node.integer;
    return true;
  }
  if (node.kind == Kind::real && std::abs(node.real) < 1e15 && node.real == std::floor(node.real)) {
    errors.add("", "expected an integer, found {}; write {}", describe_value(node),
               static_cast<int64_t>(node.real));
  } else {
    errors.mistyped(node, "an integer");
  }
  return false;
}

bool read_leaf(const ConfigNode& node, double& out, ConfigErrors& errors) {
  if (node.kind != Kind::real && node.kind != Kind::integer) {
    errors.mistyped(node, "a number");
    return false;
  }
  out = node.kind == Kind::real ? node.real : static_cast<double>(node.integer);
  return true;
}

bool read_leaf(const ConfigNode& node, std::string& out, ConfigErrors& errors) {
  if (node.kind != Kind::string && !node.from_override) {
    errors.mistyped(node, "a string in quotes");
    return false;
  }
  out = node.string;
  return true;
}

int read_enum(const ConfigNode& node, const std::vector<std::string>& names, ConfigErrors& errors) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if ((node.kind == Kind::string || node.from_override) && node.string == names[i])
      return static_cast<int>(i);
    list += (i == 0 ? "" : " | ") + names[i];
  }
  const std::string nearest = node.kind == Kind::string ? nearest_name(node.string, names) : "";
  errors.add("", "expected {}, found {}{}", list, describe_value(node),
             nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  return -1;
}

ConfigNode leaf(bool value) {
  ConfigNode node;
  node.kind = Kind::boolean;
  node.boolean = value;
  return node;
}
ConfigNode leaf(int64_t value) {
  ConfigNode node;
  node.kind = Kind::integer;
  node.integer = value;
  return node;
}
ConfigNode leaf(double value) {
  ConfigNode node;
  node.kind = Kind::real;
  node.real = value;
  return node;
}
ConfigNode leaf(const std::string& value) {
  ConfigNode node;
  node.kind = Kind::string;
  node.string = value;
  return node;
}

bool is_none(const ConfigNode& node) {
  return node.kind == Kind::string && node.string == "none";
}

const std::vector<ConfigNode>& elements(const ConfigNode& node, ConfigErrors& errors) {
  static const std::vector<ConfigNode> empty;
  if (node.kind == Kind::array) return node.items;
  errors.mistyped(node, "a list in brackets");
  return empty;
}

}  // namespace config_detail
}  // namespace ingot
