// A model's chat template: a conversation becomes text of which every byte says where it comes from, and ids
// with a mask of what the assistant wrote. Renderings equal those of transformers' apply_chat_template byte
// for byte (docs/chat.md). A ChatTemplate never changes; const methods may be called from many threads at
// once.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "base/file_system.h"
#include "chat/conversation.h"
#include "chat/reply_parser.h"
#include "tokenizer/tokenizer.h"

namespace ingot::chat {

/// Who wrote a run of the rendered text.
enum class Source : uint8_t {
  template_text,  ///< the template itself, and the names of roles
  system,         ///< the system's (developer's) message
  user,           ///< a message of the user, or of a role without a name here
  tool,           ///< a tool's result
  reasoning,      ///< the assistant's reasoning_content
  content,        ///< the assistant's content
  tool_call,      ///< the assistant's tool calls
  tools,          ///< the schemas of the tools
  option,         ///< template arguments of the caller or of the row
};
constexpr auto enum_names(Source) {
  return names_in_order<Source>("template", "system", "user", "tool", "reasoning", "content", "tool_call",
                                "tools", "option");
}

struct Run {
  size_t begin, end;  ///< bytes of Rendered::text
  Source source;
  int32_t message;  ///< index into the conversation; -1: of no message
};

struct ByteSpan {
  size_t begin, end;
  bool operator==(const ByteSpan&) const = default;
};

/// What the template cannot say itself.
struct RenderOptions {
  bool add_generation_prompt = false;                  ///< the text ends where the assistant begins to write
  std::optional<bool> enable_thinking = std::nullopt;  ///< absent: the template's default
  std::string kwargs = {};                    ///< JSON text of an object: further variables; "" if none
  std::optional<int64_t> now = std::nullopt;  ///< Unix seconds for strftime_now; absent: the clock
};

struct Rendered {
  std::string text;
  std::vector<Run> runs;             ///< cover the text in order
  std::vector<ByteSpan> loss_spans;  ///< what the assistant wrote, each to the end of its turn (docs/chat.md)
  std::vector<bool> written;         ///< by message: some of its bytes are in the text
  bool ends_in_thinking = false;     ///< the generation prompt opened the reasoning: replies start inside it
};

/// A span in the loss as generation would make it.
struct ReplyText {
  std::string_view text;  ///< without what opens the turn, which {% generation %} may hold, and its end
  std::string_view end_of_turn;  ///< "" where the span does not hold it
  bool in_thinking = false;      ///< what opens the turn has opened the reasoning
};

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<bool> in_loss;  ///< by id
};

/// Whether control tokens that messages spell are text (own: only the template's become tokens) or tokens
/// (messages: the text is encoded as a whole, as transformers does).
enum class Trust : uint8_t { own, messages };

/// The special tokens that templates may print: {"bos_token", "<s>"}, ...
using NamedTokens = std::vector<std::pair<std::string, std::string>>;

class ChatTemplate {
 public:
  /// From a model's folder: chat_template.jinja, else `chat_template` of tokenizer_config.json (a text, or a
  /// list of which "default" counts, or "tool_use" where a conversation has tools). Nothing if the folder has
  /// none. Errors of the template name the construct, the line and the column.
  static std::optional<ChatTemplate> from_folder(FileSystem& fs, const std::string& folder);
  /// `name` stands for the file in messages.
  static ChatTemplate from_text(std::string source, NamedTokens tokens = {}, std::string name = "template");
  /// A template that is shipped: "chatml-think". Error that lists the names else.
  static ChatTemplate shipped(const std::string& name);

  /// Errors: no message; what the template refuses (raise_exception); its faults and limits, with line and
  /// column.
  Rendered render(const Conversation& conversation, const RenderOptions& options = {}) const;
  /// Views into `rendered`, which outlives them.
  ReplyText reply_text(const Rendered& rendered, const ByteSpan& span) const;
  /// The rendering as ids. A span in the loss begins with an id of its own, because generation starts there.
  Encoded encode(const Rendered& rendered, const Tokenizer& tokenizer, Trust trust = Trust::own) const;
  /// The ids that generation continues.
  std::vector<int32_t> prompt_ids(const Conversation& conversation, const Tokenizer& tokenizer,
                                  RenderOptions options = {}, Trust trust = Trust::own) const;

  /// How replies in this format are read: found from the template's text. SmolLM3's Python calls where the
  /// conversation's template arguments have "python_tools".
  ReplyFormat reply_format(std::string_view kwargs = {}) const;
  /// The control text behind an assistant's turn ("<|im_end|>"); "" if the template writes none.
  const std::string& end_of_turn() const;
  /// The control texts at which generation stops: end_of_turn(), and another that the template writes behind
  /// tool calls ("<|call|>", "<|eom_id|>").
  std::vector<std::string> ends_of_turn() const;
  /// The template looks at `enable_thinking`.
  bool knows_thinking() const;
  const std::string& source() const;
  const std::string& name() const;
  const NamedTokens& tokens() const;

  struct Impl;

 private:
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// The template that `given` names: a folder (from_folder), a .jinja file, or a shipped one. Error if there
/// is none.
ChatTemplate open_template(FileSystem& fs, const std::string& given);

/// Error if the tokenizer lacks the token that ends a turn, or one that a message begins with; it names them.
void require_tokens(const ChatTemplate& chat_template, const Tokenizer& tokenizer);
/// The ids of ends_of_turn(), without those that the tokenizer lacks.
std::vector<int32_t> end_ids(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

/// render() of a row of training data: errors name `where`, and a row of which nothing is in the loss is one.
Rendered render_row(const ChatTemplate& chat_template, const Conversation& conversation,
                    const std::string& where);

/// bos_token, eos_token, pad_token, unk_token and the like of the text of a tokenizer_config.json.
NamedTokens named_tokens(std::string_view tokenizer_config_json, const std::string& name);

}  // namespace ingot::chat
