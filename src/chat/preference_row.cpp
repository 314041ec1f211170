// See preference_row.h.
#include "chat/preference_row.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"

namespace ingot::chat {
namespace {

using PreferenceJson = nlohmann::ordered_json;

PreferenceJson parse_object(std::string_view row, const std::string& where) {
  require_shallow_json(row, where);
  PreferenceJson j = PreferenceJson::parse(row, nullptr, false);
  if (j.is_discarded()) throw Error(fmt::format("{}: no valid JSON", where));
  if (!j.is_object()) throw Error(fmt::format("{}: expected an object, found {}", where, j.type_name()));
  return j;
}

/// The row with these messages as its prompt and answer, read as any other.
Conversation conversation_of(const PreferenceJson& row, const PreferenceJson& prompt,
                             const PreferenceJson& answer, const std::string& where) {
  PreferenceJson one = {{"prompt", prompt}, {"completion", answer}};
  for (const char* key : {"tools", "system", "chat_template_kwargs"})
    if (row.contains(key)) one[key] = row[key];
  return read_conversation(one.dump(-1, ' ', false, PreferenceJson::error_handler_t::replace), where);
}

PreferenceJson as_messages(const PreferenceJson& text, const char* role) {
  return PreferenceJson::array({{{"role", role}, {"content", text}}});
}

/// One side of a row, whose prompt and answer are both texts or both lists.
Conversation side_of(const PreferenceJson& row, const char* name, bool plain, const std::string& where) {
  const PreferenceJson& answer = row[name];
  if (plain != answer.is_string() || (!plain && !answer.is_array()))
    throw Error(fmt::format("{}: '{}' is {}, expected {} as 'prompt' is", where, name, answer.type_name(),
                            plain ? "a string" : "a list of messages"));
  if (answer.empty() || (plain && answer.get_ref<const std::string&>().empty()))
    throw Error(fmt::format("{}: '{}' is empty", where, name), "remove the row, or write the answer");
  if (!plain) return conversation_of(row, row["prompt"], answer, where);
  return conversation_of(row, as_messages(row["prompt"], "user"), as_messages(answer, "assistant"), where);
}

/// Chosen and rejected without a prompt: how many messages they begin with are the same.
size_t common_beginning(const PreferenceJson& row, const std::string& where) {
  const PreferenceJson &a = row["chosen"], &b = row["rejected"];
  if (!a.is_array() || !b.is_array())
    throw Error(fmt::format("{}: the row has no 'prompt', and 'chosen' and 'rejected' are {} and {}", where,
                            a.type_name(), b.type_name()),
                "give the prompt, or both as lists of messages");
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  if (n == 0)
    throw Error(fmt::format("{}: 'chosen' and 'rejected' do not begin with the same message", where),
                "both must answer one prompt: give the prompt, or the messages before the answers in both");
  if (n == a.size() || n == b.size())
    throw Error(fmt::format("{}: {} is all that both say", where, n == a.size() ? "'chosen'" : "'rejected'"),
                "each must have an answer behind the common prompt; remove rows whose answers are equal");
  return n;
}

}  // namespace

PreferenceRow read_preference(std::string_view text, const std::string& where) {
  const PreferenceJson row = parse_object(text, where);
  PreferenceRow out;
  const bool prompt = row.contains("prompt") && !row["prompt"].is_null();
  if (row.contains("chosen") && row.contains("rejected")) {
    if (row["chosen"] == row["rejected"])
      throw Error(fmt::format("{}: 'chosen' and 'rejected' are equal", where),
                  "remove the row: it says of neither that it is better");
    if (!prompt) {
      const auto n = static_cast<std::ptrdiff_t>(common_beginning(row, where));
      const PreferenceJson& all = row["chosen"];
      const auto rest = [n](const PreferenceJson& list) {
        return PreferenceJson(list.begin() + n, list.end());
      };
      const PreferenceJson shared(all.begin(), all.begin() + n);
      out.chosen = conversation_of(row, shared, rest(row["chosen"]), where);
      out.rejected = conversation_of(row, shared, rest(row["rejected"]), where);
      return out;
    }
    out.plain = row["prompt"].is_string();
    out.chosen = side_of(row, "chosen", out.plain, where);
    out.rejected = side_of(row, "rejected", out.plain, where);
    return out;
  }
  if (prompt && row.contains("completion") && row.contains("label") && row["label"].is_boolean()) {
    out.plain = row["prompt"].is_string();
    (row["label"].get<bool>() ? out.chosen : out.rejected) = side_of(row, "completion", out.plain, where);
    return out;
  }
  throw Error(
      fmt::format("{}: the row is no preference: it has neither 'chosen' and 'rejected', nor 'prompt', "
                  "'completion' and a 'label' that is true or false",
                  where));
}

bool is_preference(std::string_view row) {
  try {
    require_shallow_json(row, "row");
  } catch (const Error&) {
    return false;
  }
  const PreferenceJson j = PreferenceJson::parse(row, nullptr, false);
  if (!j.is_object()) return false;
  return (j.contains("chosen") && j.contains("rejected")) ||
         (j.contains("prompt") && j.contains("completion") && j.contains("label") && j["label"].is_boolean());
}

}  // namespace ingot::chat
