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

ChatTemplate open_template(FileSystem& fs, const std::string& given) {
  for (const ShippedTemplate& t : shipped_templates())
    if (t.name == given) return ChatTemplate::shipped(given);
  if (given.ends_with(".jinja")) {
    const size_t slash = given.rfind('/');
    const std::string config =
        (slash == std::string::npos ? "." : given.substr(0, slash)) + "/tokenizer_config.json";
    return ChatTemplate::from_text(
        fs.read(given), fs.exists(config) ? named_tokens(fs.read(config), config) : NamedTokens{}, given);
  }
  if (auto found = ChatTemplate::from_folder(fs, given)) return *found;
  throw Error(
      fmt::format("'{}' has no chat template: no chat_template.jinja, and none in tokenizer_config.json",
                  given),
      "name one: a .jinja file, a folder that has one, or chatml-think, which is shipped");
}

std::vector<int32_t> end_ids(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& mark : chat_template.ends_of_turn())
    if (const auto id = tokenizer.special_id(mark)) ids.push_back(*id);
  return ids;
}

void require_tokens(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::string& end = chat_template.end_of_turn();
  if (end.empty())
    throw Error(
        fmt::format("'{}' writes no control token behind the assistant's text", chat_template.name()),
        "a model could not learn where its turn ends; write one into the template, such as eos_token");
  std::string missing;
  for (const std::string& token : {end, std::string(end == "<|im_end|>" ? "<|im_start|>" : "")})
    if (!token.empty() && !tokenizer.special_id(token)) missing += (missing.empty() ? "" : ", ") + token;
  if (!missing.empty())
    throw Error(
        fmt::format("the chat template '{}' writes {}, which the tokenizer does not have as special tokens",
                    chat_template.name(), missing),
        "use a tokenizer that has them, or another template");
}

Rendered render_row(const ChatTemplate& chat_template, const Conversation& conversation,
                    const std::string& where) {
  Rendered r = [&] {
    try {
      return chat_template.render(conversation);
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}", where, e.what()), e.hint());
    }
  }();
  if (r.loss_spans.empty())
    throw Error(fmt::format("{}: nothing of the conversation is in the loss", where),
                "it needs a message of the assistant whose weight is not 0; remove the row otherwise");
  return r;
}

}  // namespace ingot::chat
