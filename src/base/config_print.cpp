// ConfigNode to text: TOML with comments, and JSON.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/config_node.h"

namespace ingot {
namespace {

using Kind = ConfigNode::Kind;

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string key_text(const std::string& key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? key : quote(key);
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);  // the shortest text that reads back to the same bits
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string inline_text(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::boolean:
      return node.boolean ? "true" : "false";
    case Kind::integer:
      return std::to_string(node.integer);
    case Kind::real:
      return real_text(node.real);
    case Kind::string:
      return quote(node.string);
    case Kind::array:
      break;
    case Kind::table:
      break;
  }
  const bool table = node.kind == Kind::table;
  std::string out = table ? "{" : "[";
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (table) out += key_text(node.items[i].name) + " = ";
    out += inline_text(node.items[i]);
  }
  return out + (table ? "}" : "]");
}

bool is_table_list(const ConfigNode& node) {
  return node.kind == Kind::array && !node.items.empty() &&
         std::all_of(node.items.begin(), node.items.end(),
                     [](const ConfigNode& item) { return item.kind == Kind::table; });
}

std::string comment(const std::string& doc) {
  std::string text = "# " + doc;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void print_table(const ConfigNode& table, const std::string& path, std::string& out) {
  size_t width = 0;
  for (const auto& item : table.items)
    if (item.kind != Kind::table && !is_table_list(item)) {
      const size_t length = key_text(item.name).size() + 3 + inline_text(item).size();
      if (length <= 40) width = std::max(width, length);
    }
  for (const auto& item : table.items) {
    if (item.kind == Kind::table || is_table_list(item)) continue;
    std::string line = key_text(item.name) + " = " + inline_text(item);
    if (!item.doc.empty()) {
      if (line.size() < width) line.append(width - line.size(), ' ');
      line += "  " + comment(item.doc);
    }
    out += line + "\n";
  }
  for (const auto& item : table.items) {
    const std::string name = path.empty() ? key_text(item.name) : path + "." + key_text(item.name);
    if (item.kind == Kind::table) {
      out += fmt::format("\n{}[{}]\n", item.doc.empty() ? "" : comment(item.doc) + "\n", name);
      print_table(item, name, out);
    } else if (is_table_list(item)) {
      for (const auto& element : item.items) {
        out += fmt::format("\n{}[[{}]]\n", item.doc.empty() ? "" : comment(item.doc) + "\n", name);
        print_table(element, name, out);
      }
    }
  }
}

nlohmann::ordered_json to_json_value(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::boolean:
      return node.boolean;
    case Kind::integer:
      return node.integer;
    case Kind::real:
      if (std::isfinite(node.real)) return node.real;
      return real_text(node.real);
    case Kind::string:
      return node.string;
    case Kind::array: {
      auto array = nlohmann::ordered_json::array();
      for (const auto& item : node.items) array.push_back(to_json_value(item));
      return array;
    }
    case Kind::table:
      break;
  }
  auto object = nlohmann::ordered_json::object();
  for (const auto& item : node.items) object[item.name] = to_json_value(item);
  return object;
}

}  // namespace

std::string to_toml(const ConfigNode& tree) {
  std::string out;
  print_table(tree, "", out);
  if (!out.empty() && out.front() == '\n') out.erase(0, 1);
  return out;
}

std::string to_json(const ConfigNode& tree) {
  return to_json_value(tree).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ingot
