// See config_node.h: overrides, differences, and how values are named in messages.
#include "base/config_node.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

using Kind = ConfigNode::Kind;

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

std::vector<std::string> split_path(std::string_view path, const std::string& argument) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.') {
      parts.emplace_back();
    } else if (is_key_character(c)) {
      parts.back() += c;
    } else {
      fail("'{}': a key consists of letters, digits, '_', '-' and dots between the parts", argument);
    }
  }
  if (parts.size() > 32) fail("'{}': a key with more than 32 parts", argument);
  for (const auto& part : parts)
    if (part.empty()) fail("'{}': an empty part in the key; expected --section.key=value", argument);
  return parts;
}

std::string leaf_text(const ConfigNode& node) {
  ConfigNode table;
  table.items.push_back(node);
  table.items[0].name = "x";
  table.items[0].doc.clear();
  std::string text = to_toml(table);
  text = text.substr(text.find('=') + 1);
  while (!text.empty() && (text.front() == ' ')) text.erase(0, 1);
  while (!text.empty() && (text.back() == '\n')) text.pop_back();
  return text;
}

ConfigNode parse_override_value(const std::string& text, const std::string& argument) {
  ConfigNode node;
  bool is_toml = text.find('\n') == std::string::npos && text.find('#') == std::string::npos;
  if (is_toml) {
    try {
      ConfigNode table = parse_toml("x = " + text, argument);
      is_toml = table.items.size() == 1 && table.items[0].name == "x";
      if (is_toml) node = std::move(table.items[0]);
    } catch (const Error&) {
      is_toml = false;
    }
  }
  if (!is_toml) {
    node = ConfigNode{};
    node.kind = Kind::string;
    node.string = text;
    try {
      parse_toml("x = " + leaf_text(node), argument);
    } catch (const Error&) {
      fail("an override of '{}' holds a value that is not UTF-8 text",
           argument.substr(0, argument.find('=')));
    }
  }
  if (node.kind != Kind::string) node.string = text;  // in case a string field is meant: --name=123
  node.from_override = true;
  return node;
}

/// Levels of values inside a value.
size_t levels(const ConfigNode& node) {
  size_t most = 0;
  for (const auto& item : node.items) most = std::max(most, 1 + levels(item));
  return most;
}

void set_where(ConfigNode& node, const std::string& where) {
  node.where = where;
  for (auto& item : node.items) set_where(item, where);
}

// The element of an array that `part` names; one past the end appends a table.
ConfigNode& array_element(ConfigNode& array, const std::string& part, const std::string& argument) {
  size_t index = 0;
  const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (code != std::errc{} || end != part.data() + part.size())
    fail("'{}': '{}' is a list with {} elements; expected an index, found '{}'", argument, array.name,
         array.items.size(), part);
  if (index > array.items.size())
    fail("'{}': '{}' has {} elements; index {} is out of range", argument, array.name, array.items.size(),
         index);
  if (index == array.items.size()) {
    array.items.emplace_back();
    array.items.back().where = argument;
  }
  return array.items[index];
}

bool all_tables(const ConfigNode& array) {
  return !array.items.empty() && std::all_of(array.items.begin(), array.items.end(),
                                             [](const ConfigNode& item) { return item.kind == Kind::table; });
}

/// A key as a part of a path: quoted where it has dots or is empty, so that no two values share a path.
std::string path_part(const std::string& key) {
  if (!key.empty() && std::all_of(key.begin(), key.end(), is_key_character)) return key;
  ConfigNode text;
  text.kind = Kind::string;
  text.string = key;
  return leaf_text(text);
}

struct Leaf {
  std::string path, text;
  bool fixed = false;
};
void flatten(const ConfigNode& node, const std::string& path, bool fixed, std::vector<Leaf>& out) {
  fixed = (fixed || node.fixed) && !node.free;
  const auto join = [&](const std::string& part) { return path.empty() ? part : path + "." + part; };
  if (node.kind == Kind::table) {
    for (const auto& item : node.items) flatten(item, join(path_part(item.name)), fixed, out);
  } else if (node.kind == Kind::array && all_tables(node)) {
    for (size_t i = 0; i < node.items.size(); ++i)
      flatten(node.items[i], join(std::to_string(i)), fixed, out);
  } else {
    out.push_back({path, leaf_text(node), fixed});
  }
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view key) const {
  if (kind == Kind::table)
    for (const auto& item : items)
      if (item.name == key) return &item;
  return nullptr;
}
ConfigNode* ConfigNode::find(std::string_view key) {
  return const_cast<ConfigNode*>(std::as_const(*this).find(key));
}

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"a boolean", "an integer", "a number with a fraction",
                                    "a string",  "a list",     "a table"};
  return kNames[static_cast<int>(kind)];
}

std::string describe_value(const ConfigNode& node) {
  if (node.kind == Kind::table) return "a table";
  if (node.kind == Kind::array) return fmt::format("a list of {} elements", node.items.size());
  const char* what = node.kind == Kind::boolean  ? "the boolean"
                     : node.kind == Kind::string ? "the string"
                                                 : "the number";
  std::string text = leaf_text(node);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return fmt::format("{} {}", what, text);
}

void apply_override(ConfigNode& tree, const ConfigNode& defaults, const std::string& argument) {
  const size_t equals = argument.find('=');
  if (argument.rfind("--", 0) != 0 || equals == std::string::npos)
    throw Error(fmt::format("unknown option '{}'", argument),
                "set fields of a recipe as --section.key=value");
  const auto parts = split_path(std::string_view(argument).substr(2, equals - 2), argument);
  ConfigNode value = parse_override_value(argument.substr(equals + 1), argument);
  set_where(value, argument);
  if (parts.size() + levels(value) > 32)  // what parse_toml reads
    fail("an override of '{}' nests values deeper than 32 levels", argument.substr(0, equals));

  ConfigNode* node = &tree;
  const ConfigNode* known = &defaults;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const bool last = i + 1 == parts.size();
    if (node->kind == Kind::array) {
      node = &array_element(*node, part, argument);
      known = nullptr;
    } else if (node->kind == Kind::table) {
      known = known != nullptr ? known->find(part) : nullptr;
      ConfigNode* next = node->find(part);
      if (next == nullptr) {
        ConfigNode fresh;
        if (known != nullptr && known->kind == Kind::array) {
          fresh = *known;
        } else if (!last && parts[i + 1].find_first_not_of("0123456789") == std::string::npos) {
          fresh.kind = Kind::array;  // a list that neither the file nor the defaults have
        }
        set_where(fresh, argument);
        fresh.name = part;
        node->items.push_back(std::move(fresh));
        next = &node->items.back();
      }
      node = next;
    }
    if (!last && node->kind == Kind::string && node->string == "none") {  // a section that is not set
      node->kind = Kind::table;
      node->string.clear();
    }
    if (!last && node->kind != Kind::table && node->kind != Kind::array)
      fail("'{}': '{}' is {}, it has no keys", argument, part, describe_value(*node));
  }
  value.name = node->name;
  *node = std::move(value);
}

std::vector<std::string> move_renamed_keys(ConfigNode& tree, std::span<const RenamedKey> renamed) {
  std::vector<std::string> notes;
  for (const RenamedKey& key : renamed) {
    ConfigNode* table = &tree;
    std::string_view rest = key.before;
    for (size_t dot; table != nullptr && (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1))
      table = table->find(rest.substr(0, dot));
    ConfigNode* found = table != nullptr ? table->find(rest) : nullptr;
    if (found == nullptr) continue;
    ConfigNode value = std::move(*found);
    table->items.erase(table->items.begin() + (found - table->items.data()));

    const std::vector<std::string> parts = split_path(key.now, key.now);
    table = &tree;
    for (const std::string& part : parts) {
      ConfigNode* next = table->find(part);
      if (next != nullptr && (next->kind != Kind::table || &part == &parts.back()))
        fail("{}: '{}' is now called '{}', which is given too", value.where, key.before, key.now);
      if (next == nullptr) {
        next = &table->items.emplace_back();
        next->name = part;
        next->where = value.where;
      }
      table = next;
    }
    notes.push_back(fmt::format("{}: '{}' is now called '{}'", value.where, key.before, key.now));
    value.name = table->name;
    *table = std::move(value);
  }
  return notes;
}

std::string with_present_key(const std::string& argument, std::span<const RenamedKey> renamed) {
  for (const RenamedKey& key : renamed) {
    const std::string before = std::string("--") + key.before;
    if (argument.rfind(before, 0) == 0 && argument.size() > before.size() &&
        (argument[before.size()] == '.' || argument[before.size()] == '='))
      return std::string("--") + key.now + argument.substr(before.size());
  }
  return argument;
}

std::vector<ConfigDifference> diff_config(const ConfigNode& left, const ConfigNode& right) {
  std::vector<Leaf> a, b;
  flatten(left, "", false, a);
  flatten(right, "", false, b);
  const auto find = [](const std::vector<Leaf>& leaves, const std::string& path) {
    const auto it = std::find_if(leaves.begin(), leaves.end(), [&](auto& leaf) { return leaf.path == path; });
    return it == leaves.end() ? Leaf{path, "(absent)"} : *it;
  };
  std::vector<ConfigDifference> differences;
  for (const Leaf& l : a)
    if (const Leaf r = find(b, l.path); r.text != l.text)
      differences.push_back({l.path, l.text, r.text, l.fixed || r.fixed});
  for (const Leaf& r : b)
    if (find(a, r.path).text == "(absent)") differences.push_back({r.path, "(absent)", r.text, r.fixed});
  return differences;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 2 + name.size() / 4;  // farther names are not what was meant
  for (const auto& candidate : candidates) {
    if (candidate.size() > 200 || name.size() > 200) continue;
    if (name.size() >= 3 && candidate.rfind(name, 0) == 0 && best.empty()) best = candidate;
    // Optimal string alignment: rows i-2, i-1 and i of the distance table.
    const size_t n = candidate.size();
    std::vector<size_t> before(n + 1), last(n + 1), row(n + 1);
    for (size_t j = 0; j <= n; ++j) last[j] = j;
    for (size_t i = 1; i <= name.size(); ++i) {
      row[0] = i;
      for (size_t j = 1; j <= n; ++j) {
        const bool same = name[i - 1] == candidate[j - 1];
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
        if (i > 1 && j > 1 && name[i - 1] == candidate[j - 2] && name[i - 2] == candidate[j - 1])
          row[j] = std::min(row[j], before[j - 2] + 1);
      }
      before.swap(last);
      last.swap(row);
    }
    if (last[n] < best_distance && last[n] < name.size()) {
      best_distance = last[n];
      best = candidate;
    }
  }
  return best;
}

}  // namespace ingot
