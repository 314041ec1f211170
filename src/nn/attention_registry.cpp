// See attention_registry.h.
#include "nn/attention_registry.h"

#include <map>

namespace ingot {
namespace {

std::map<std::string, AttentionMaker>& makers() {
  static std::map<std::string, AttentionMaker> all;
  return all;
}

}  // namespace

void register_attention(const std::string& name, AttentionMaker make) {
  if (name.empty()) fail("an attention needs a name");
  if (!makers().emplace(name, std::move(make)).second)
    fail("an attention named '{}' is registered already", name);
}

const AttentionMaker* find_attention(const std::string& name) {
  const auto found = makers().find(name);
  return found == makers().end() ? nullptr : &found->second;
}

std::string describe_registered_attentions() {
  std::string names;
  for (const auto& [name, make] : makers()) names += (names.empty() ? "registered: " : ", ") + name;
  return names.empty() ? "none is" : names;
}

}  // namespace ingot
