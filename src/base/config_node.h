// The tree behind every configuration: what a recipe file says, what `--section.key=value` overrides change,
// and what a config struct (config.h) writes. TOML in and out, JSON out, differences. Docs: docs/config.md.
// Values are immutable data without hidden state; nothing here is tied to a thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// One value of a configuration with its place of origin.
struct ConfigNode {
  enum class Kind { boolean, integer, real, string, array, table };
  Kind kind = Kind::table;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string string;
  std::vector<ConfigNode> items;  ///< elements of an array; values of a table, each with its `name`
  std::string name;               ///< key in the parent table, "" in arrays and for the root
  std::string where;              ///< "recipe.toml:12" or "--optimizer.lr=3": for messages
  std::string doc;                ///< one line for people, printed as a comment; set by config structs only
  bool fixed = false;             ///< may not change when a run resumes; set by config structs only
  bool free = false;              ///< may, in a table that is fixed too; set by config structs only
  bool from_override = false;     ///< `string` then holds the text as typed, whatever `kind` it was read as

  /// The value named `key` of a table, or nullptr.
  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
};

/// "an integer", "a table", ...: the kind as messages name it.
const char* kind_name(ConfigNode::Kind kind);
/// "the string \"fast\"", "the integer 3", "a table": a found value as messages show it (long strings are
/// cut).
std::string describe_value(const ConfigNode& node);

/// Reads TOML. `source` names the text in messages and places. Error with line and column on malformed text,
/// on dates (recipes have none), on more than 1 MiB and on nesting deeper than 32 levels.
ConfigNode parse_toml(std::string_view text, const std::string& source);
ConfigNode load_toml(const std::string& path);

/// Sets one value from "--section.key=value". Array elements are named by index ("--phases.0.steps=10"); the
/// index one past the end appends. Where the file has no such array, `defaults` supplies it. The value is
/// read as TOML where it is TOML and as a plain string otherwise, so strings need no quotes. Error on a
/// malformed argument.
void apply_override(ConfigNode& tree, const ConfigNode& defaults, const std::string& argument);

/// A key that had another name. Both are paths from the root ("optimizer.lr").
struct RenamedKey {
  const char* before;
  const char* now;
};
/// Moves values that stand under former names to their present places, and returns a note on each
/// ("recipe.toml:3: 'a' is now called 'b'"). Error where a tree has both names.
std::vector<std::string> move_renamed_keys(ConfigNode& tree, std::span<const RenamedKey> renamed);
/// The override "--section.key=value" with the present name of its key.
std::string with_present_key(const std::string& argument, std::span<const RenamedKey> renamed);

/// TOML text with `doc` comments; parse_toml gives the same values back (doubles in shortest exact form).
std::string to_toml(const ConfigNode& tree);
/// The same as JSON (indented by two); infinities and NaN become the strings "inf", "-inf", "nan".
std::string to_json(const ConfigNode& tree);

/// A value that differs between two configurations; `left` or `right` is "(absent)" where a side lacks it.
struct ConfigDifference {
  std::string path, left, right;
  bool fixed = false;  ///< a side marks the value, or a table around it, as fixed, and not the value as free
};
/// Differences by path ("optimizer.lr", "phases.0.steps"), in the order of `left`, then what only `right`
/// has.
std::vector<ConfigDifference> diff_config(const ConfigNode& left, const ConfigNode& right);

/// The candidate nearest to `name` (edit distance with transpositions) or "" when none is near enough to be
/// meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace ingot
