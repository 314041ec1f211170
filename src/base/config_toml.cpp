// TOML text to ConfigNode: the one file that knows the TOML library.

// Version 3.3 of the library has assertions that malformed text can reach ("[ ,a]"). They are compiled here,
// into this file, as exceptions: with NDEBUG they would be assumptions for the optimizer, and without it they
// would abort.
#undef NDEBUG
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
namespace {
struct TomlAssertion {};
[[noreturn]] void toml_assertion_failed() {
  throw TomlAssertion{};
}
}  // namespace
#define TOML_ASSERT(condition) ((condition) ? (void)0 : toml_assertion_failed())
#include <toml++/toml.h>

#include <algorithm>

#include "base/config_node.h"
#include "base/error.h"
#include "base/file_system.h"

namespace ingot {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxDepth = 32;
constexpr const char* kHint =
    "strings need quotes; a table starts with [name], a list of tables with [[name]]";

std::string place(const std::string& source, const toml::source_region& region) {
  return region.begin ? fmt::format("{}:{}", source, region.begin.line) : source;
}

// The library's parser and destructor recurse once per part of a dotted key, so a hostile key could exhaust
// the stack: long chains of dots outside strings and comments are refused before it sees them.
void refuse_hostile_keys(std::string_view text, const std::string& source) {
  int line = 1, dots = 0;
  for (size_t i = text.substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const bool multi = text.substr(i, 3) == std::string(3, c);
      const std::string quote(multi ? 3 : 1, c);
      i += quote.size();
      for (; i < text.size() && text.substr(i, quote.size()) != quote; ++i) {
        if (c == '"' && text[i] == '\\') {
          const size_t next = std::min(text.find_first_not_of(" \t\r\n", i + 1), text.size());
          if (next > i + 1 && next < text.size() && static_cast<unsigned char>(text[next]) >= 0x80)
            fail("{}:{}: a line after '\\' that starts beyond ASCII; join the two lines", source, line);
          ++i;
        }
        if (i < text.size() && text[i] == '\n') {
          if (!multi) return;  // not TOML: the parser reports this line and reads no further
          ++line;
        }
      }
      i += quote.size() - 1;
    } else if (static_cast<unsigned char>(c) >=
               0x80) {  // not TOML, and the parser's tables are not safe with all
      fail("{}:{}: a character beyond ASCII outside quotes and comments", source, line);
    } else if (c == '.') {
      if (++dots >= kMaxDepth) fail("{}:{}: a key with more than {} parts", source, line, kMaxDepth);
    } else if (std::string_view("\n=,[{").find(c) != std::string_view::npos) {
      dots = 0;
    }
  }
}

ConfigNode convert(const toml::node& from, const std::string& source, int depth) {
  ConfigNode node;
  node.where = place(source, from.source());
  if (depth > kMaxDepth) fail("{}: values are nested deeper than {} levels", node.where, kMaxDepth);
  if (const auto* table = from.as_table()) {
    std::vector<std::pair<uint64_t, ConfigNode>>
        entries;  // the library sorts by name; people expect their order
    for (const auto& [key, value] : *table) {
      ConfigNode item = convert(value, source, depth + 1);
      item.name = std::string(key.str());
      item.where = place(source, key.source());
      const auto begin = key.source().begin;
      entries.emplace_back((uint64_t{begin.line} << 32) | begin.column, std::move(item));
    }
    std::stable_sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto& entry : entries) node.items.push_back(std::move(entry.second));
  } else if (const auto* array = from.as_array()) {
    node.kind = ConfigNode::Kind::array;
    for (const auto& value : *array) node.items.push_back(convert(value, source, depth + 1));
  } else if (const auto* text = from.as_string()) {
    node.kind = ConfigNode::Kind::string;
    node.string = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.kind = ConfigNode::Kind::integer;
    node.integer = integer->get();
  } else if (const auto* real = from.as_floating_point()) {
    node.kind = ConfigNode::Kind::real;
    node.real = real->get();
  } else if (const auto* boolean = from.as_boolean()) {
    node.kind = ConfigNode::Kind::boolean;
    node.boolean = boolean->get();
  } else {
    fail("{}: dates and times have no meaning in a recipe; write a string in quotes", node.where);
  }
  return node;
}

}  // namespace

ConfigNode parse_toml(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes)
    fail("'{}' has {} bytes, more than the {} that a recipe may have", source, text.size(), kMaxBytes);
  refuse_hostile_keys(text, source);
  try {
    const toml::table table = toml::parse(text, source);
    ConfigNode root = convert(table, source, 0);
    root.where = source;
    return root;
  } catch (const TomlAssertion&) {
    throw Error(fmt::format("{}: not valid TOML: a malformed key or value", source), kHint);
  } catch (const toml::parse_error& error) {
    const auto begin = error.source().begin;
    throw Error(
        fmt::format("{}:{}:{}: not valid TOML: {}", source, begin.line, begin.column, error.description()),
        kHint);
  }
}

ConfigNode load_toml(const std::string& path) {
  return parse_toml(real_file_system().read(path), path);
}

}  // namespace ingot
