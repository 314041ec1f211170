// Chat templates from files (chat_template.h), and those that are shipped.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "chat/chat_template_impl.h"
#include "chat/shipped_templates.h"

namespace ingot::chat {
namespace {

using Json = nlohmann::ordered_json;

Json config_object(std::string_view text, const std::string& name) {
  require_shallow_json(text, name);
  try {
    Json j = Json::parse(text);
    if (!j.is_object()) fail("'{}': expected an object, found {}", name, j.type_name());
    return j;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("'{}' is not valid JSON: {}", name, e.what()));
  }
}

/// The template of this name in a list of {"name", "template"}; "" if there is none.
std::string named_template(const Json& list, const char* wanted, const std::string& where) {
  for (const Json& one : list) {
    if (!one.is_object() || !one.contains("name") || !one.contains("template") || !one["name"].is_string() ||
        !one["template"].is_string())
      fail("'{}': chat_template: expected a list of {{\"name\", \"template\"}}", where);
    if (one["name"] == wanted) return one["template"].get<std::string>();
  }
  return "";
}

}  // namespace

NamedTokens named_tokens(std::string_view text, const std::string& name) {
  const Json j = config_object(text, name);
  NamedTokens out;
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto v = j.find(key);
    if (v == j.end()) continue;
    if (v->is_string()) out.emplace_back(key, v->get<std::string>());
    if (v->is_object() && v->contains("content") && (*v)["content"].is_string())
      out.emplace_back(key, (*v)["content"].get<std::string>());
  }
  return out;
}

std::optional<ChatTemplate> ChatTemplate::from_folder(FileSystem& fs, const std::string& folder) {
  const std::string config = folder + "/tokenizer_config.json", own = folder + "/chat_template.jinja";
  const std::string tool_use = folder + "/additional_chat_templates/tool_use.jinja";
  NamedTokens tokens;
  Json j = Json::object();
  if (fs.exists(config)) {
    const std::string text = fs.read(config);
    tokens = named_tokens(text, config);
    j = config_object(text, config);
  }
  if (fs.exists(own))
    return ChatTemplate(
        make_template(fs.read(own), fs.exists(tool_use) ? fs.read(tool_use) : "", std::move(tokens), own));
  const auto found = j.find("chat_template");
  if (found == j.end() || found->is_null()) return std::nullopt;
  const std::string name = config + ": chat_template";
  if (found->is_string())
    return ChatTemplate(make_template(found->get<std::string>(), "", std::move(tokens), name));
  if (!found->is_array()) fail("'{}': expected a text or a list, found {}", name, found->type_name());
  const std::string plain = named_template(*found, "default", config);
  if (plain.empty()) fail("'{}': the list has no template of the name 'default'", name);
  return ChatTemplate(
      make_template(plain, named_template(*found, "tool_use", config), std::move(tokens), name));
}

ChatTemplate ChatTemplate::shipped(const std::string& name) {
  std::string names;
  for (const ShippedTemplate& t : shipped_templates()) {
    if (t.name == name)
      return from_text(std::string(t.source), {{"eos_token", std::string(t.end_of_turn)}}, name + ".jinja");
    names += (names.empty() ? "" : ", ") + std::string(t.name);
  }
  throw Error(fmt::format("no chat template '{}' is shipped", name), "shipped templates: " + names);
}

}  // namespace ingot::chat
