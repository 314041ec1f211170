// Fuzzes the recipe parser, overrides and printing: text that parses prints to text that parses alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/config_node.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // First line: an override; the rest: the recipe.
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  ingot::ConfigNode tree;
  try {
    tree = ingot::parse_toml(end == text.npos ? text : text.substr(end + 1), "fuzz");
    if (end != text.npos && end > 0) ingot::apply_override(tree, {}, "--" + text.substr(0, end));
  } catch (const ingot::Error&) {
    return 0;
  }
  const std::string printed = ingot::to_toml(tree);
  ingot::to_json(tree);
  if (printed.size() > (size_t{1} << 20)) return 0;  // longer than a recipe may be
  const ingot::ConfigNode back = ingot::parse_toml(printed, "printed");
  if (ingot::to_toml(back) != printed) std::abort();
  if (!ingot::diff_config(tree, back).empty()) std::abort();
  return 0;
}
