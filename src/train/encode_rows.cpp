// See encode_rows.h.
#include "train/encode_rows.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "chat/preference_row.h"
#include "train/prepare.h"

namespace ingot {

struct RowEncoder::State {
  const Tokenizer& tokenizer;
  std::optional<chat::ChatTemplate> chat_template;  ///< where a source has conversations
  bool trust = false;
  DocumentTokens ends;
  EncodeOptions plain;

  data::ConversationTokens document(const chat::Rendered& r) const {
    chat::Encoded e = chat_template->encode(r, tokenizer, trust ? chat::Trust::messages : chat::Trust::own);
    data::ConversationTokens out{std::move(e.ids), std::move(e.in_loss), 0};
    for (const chat::ByteSpan& s : r.loss_spans) out.loss_bytes += static_cast<int64_t>(s.end - s.begin);
    return out;
  }
  data::ConversationTokens document(const chat::Conversation& c, const std::string& where) const {
    return document(chat::render_row(*chat_template, c, where));
  }
  /// A user's text and an assistant's behind it, without a template.
  data::ConversationTokens plain_document(const chat::Conversation& c) const {
    data::ConversationTokens out;
    const std::string &prompt = *c.messages.at(0).content, &answer = *c.messages.at(1).content;
    if (ends.begin) out.ids.push_back(*ends.begin);
    tokenizer.encode_to(prompt, plain, out.ids);
    out.in_loss.assign(out.ids.size(), false);
    tokenizer.encode_to(answer, plain, out.ids);
    if (ends.end) out.ids.push_back(*ends.end);
    out.in_loss.resize(out.ids.size(), true);
    out.loss_bytes = static_cast<int64_t>(answer.size());
    return out;
  }
};

namespace {

bool is_any_conversation(const SourceConfig& s) {
  return s.conversations || s.preferences;
}

/// The conversation up to message `last`, of which alone is in the loss.
chat::Conversation up_to(const chat::Conversation& c, size_t last) {
  chat::Conversation part = c;
  part.messages.resize(last + 1);
  for (size_t i = 0; i < last; ++i) part.messages[i].in_loss = false;
  return part;
}

/// Turns in the loss whose reasoning the rendering of the whole leaves out.
std::vector<size_t> turns_without_reasoning(const chat::Conversation& c, const chat::Rendered& whole) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < c.messages.size(); ++i) {
    const chat::Message& m = c.messages[i];
    if (m.role != "assistant" || !m.in_loss || !m.reasoning_content || m.reasoning_content->empty()) continue;
    const bool shown = std::any_of(whole.runs.begin(), whole.runs.end(), [&](const chat::Run& r) {
      return r.source == chat::Source::reasoning && r.message == static_cast<int32_t>(i);
    });
    if (!shown) turns.push_back(i);
  }
  return turns;
}

/// The same conversation answered without reasoning; nothing where it has none.
std::optional<chat::Conversation> without_thinking(const chat::Conversation& c) {
  chat::Conversation plain = c;
  bool reasons = false;
  for (chat::Message& m : plain.messages) {
    reasons |= m.reasoning_content && !m.reasoning_content->empty();
    m.reasoning_content.reset();
  }
  if (!reasons) return std::nullopt;
  return plain;
}

}  // namespace

RowEncoder::RowEncoder(FileSystem& fs, const Recipe& recipe, const Tokenizer& tokenizer,
                       const std::string& folder)
    : state_(nullptr) {
  State s{.tokenizer = tokenizer,
          .chat_template = std::nullopt,
          .trust = recipe.data.trust_text,
          .ends = document_tokens(recipe.data, tokenizer),
          .plain = encode_options(recipe.data)};
  const auto& sources = recipe.data.sources;
  const std::string& given = recipe.data.chat_template;
  if (std::any_of(sources.begin(), sources.end(), [](const auto& c) { return c.conversations; }))
    s.chat_template.emplace(chat::open_template(fs, given.empty() ? folder : given));
  else if (std::any_of(sources.begin(), sources.end(), is_any_conversation))  // rows may all be plain
    s.chat_template =
        given.empty() ? chat::ChatTemplate::from_folder(fs, folder) : chat::open_template(fs, given);
  if (s.chat_template) chat::require_tokens(*s.chat_template, tokenizer);
  state_ = std::make_shared<const State>(std::move(s));
}

void RowEncoder::describe(const SourceConfig& source, data::TokenizerView& view) const {
  view.encode_row = {};
  if (!is_any_conversation(source)) return;
  std::string all = state_->chat_template ? state_->chat_template->source() : "";
  if (state_->trust) all += "\ntrusted";
  if (source.each_turn) all += "\neach turn";
  if (source.thinking == ThinkingRows::both) all += "\nthinking and not";
  view.conversation_hash = hash128_hex(all.data(), all.size());
  const std::shared_ptr<const State> state = state_;
  using Documents = std::vector<data::ConversationTokens>;
  if (source.preferences) {
    view.encode_row = [state](std::string_view row, const std::string& where, Documents& out) {
      const chat::PreferenceRow p = chat::read_preference(row, where);
      if (!p.plain && !state->chat_template)
        throw Error(fmt::format("{}: the row has messages, and there is no chat template", where),
                    "name one with data.chat_template, or write prompt and answers as texts");
      for (const auto* side : {&p.chosen, &p.rejected})
        out.push_back(!*side    ? data::ConversationTokens()
                      : p.plain ? state->plain_document(**side)
                                : state->document(**side, where));
    };
    return;
  }
  const bool each_turn = source.each_turn, both = source.thinking == ThinkingRows::both;
  view.encode_row = [state, each_turn, both](std::string_view row, const std::string& where, Documents& out) {
    const chat::Conversation c = chat::read_conversation(row, where);
    const chat::Rendered whole = chat::render_row(*state->chat_template, c, where);
    const std::vector<size_t> turns = each_turn ? turns_without_reasoning(c, whole) : std::vector<size_t>();
    if (turns.empty()) {
      out.push_back(state->document(whole));
    } else {
      for (const size_t turn : turns) out.push_back(state->document(up_to(c, turn), where));
      chat::Conversation rest = c;  // what is in their loss is not in it again
      for (const size_t turn : turns) rest.messages[turn].in_loss = false;
      const bool more = std::any_of(rest.messages.begin(), rest.messages.end(), [](const chat::Message& m) {
        return m.role == "assistant" && m.in_loss;
      });
      if (more) out.push_back(state->document(rest, where));
    }
    if (const auto plain = both ? without_thinking(c) : std::nullopt)
      out.push_back(state->document(state->chat_template->render(*plain, {.enable_thinking = false})));
  };
}

}  // namespace ingot
