// What a ChatTemplate holds. Internal to this folder.
#pragma once
#include <memory>
#include <string>

#include "chat/chat_template.h"
#include "chat/jinja/template.h"
#include "chat/loss_spans.h"

namespace ingot::chat {

struct ChatTemplate::Impl {
  explicit Impl(jinja::Template t) : plain(std::move(t)) {}
  jinja::Template plain;
  std::unique_ptr<jinja::Template> for_tools;  ///< "tool_use" of a list of templates
  std::string source, name;
  NamedTokens tokens;
  std::string opening, header, end_of_turn;  ///< of a plain conversation; TurnBorders says what they are
};

/// Parses, and finds the borders of turns. `for_tools`: the source of a second template; "" if there is none.
std::shared_ptr<const ChatTemplate::Impl> make_template(std::string source, const std::string& for_tools,
                                                        NamedTokens tokens, std::string name);

}  // namespace ingot::chat
