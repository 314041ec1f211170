// See aggregate.h.
#include "reason/aggregate.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot::reason {
namespace {

// Short, so that models of a few million parameters learn it.
constexpr const char* kAggregate =
    R"jinja({{- messages[-1].content }}
{%- if candidates | length == 1 %}
{{- '\nRefine this candidate, which may be wrong.' }}
{%- else %}
{{- '\nSome candidates may be wrong. Give one solution.' }}
{%- endif %}
{%- for candidate in candidates %}
{{- '\n[' ~ loop.index ~ '] ' ~ candidate }}
{%- endfor %})jinja";

/// No text of a problem has it: it is no character.
std::string marker(size_t candidate) {
  return fmt::format("\x1a{}\x1a", candidate);
}

/// The bytes [begin, end) of a rendering as one of its own.
chat::Rendered part_of(const chat::Rendered& whole, size_t begin, size_t end) {
  chat::Rendered part;
  part.text = whole.text.substr(begin, end - begin);
  for (chat::Run run : whole.runs) {
    run.begin = std::max(run.begin, begin), run.end = std::min(run.end, end);
    if (run.begin >= run.end) continue;
    run.begin -= begin, run.end -= begin;
    part.runs.push_back(run);
  }
  part.written = whole.written;
  return part;
}

}  // namespace

AggregateTemplate::AggregateTemplate() : AggregateTemplate(kAggregate, "aggregate.jinja") {}

AggregateTemplate::AggregateTemplate(std::string source, const std::string& name)
    : template_(chat::ChatTemplate::from_text(std::move(source), {}, name)) {}

std::string AggregateTemplate::message(const std::string& problem,
                                       std::span<const std::string> candidates) const {
  chat::Conversation asked;
  asked.messages = {chat::text_message("user", problem)};
  std::vector<std::string> markers;
  for (size_t i = 0; i < candidates.size(); ++i) markers.push_back(marker(i));
  asked.kwargs = nlohmann::json{{"problem", problem}, {"candidates", markers}}.dump();
  std::string text = template_.render(asked).text;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t at = text.find(markers[i]);
    if (at == text.npos || text.find(markers[i], at + 1) != text.npos)
      throw Error(fmt::format("{}: candidate {} stands in the message {}", template_.name(), i + 1,
                              at == text.npos ? "nowhere" : "more than once"),
                  "write each of `candidates` once");
    text.replace(at, markers[i].size(), candidates[i]);
  }
  return text;
}

chat::Conversation AggregateTemplate::conversation(const chat::Conversation& problem,
                                                   std::span<const std::string> candidates) const {
  INGOT_CHECK(!problem.messages.empty(), "a problem without messages");
  chat::Conversation all = problem;
  all.messages.back().content = message(problem.messages.back().content.value_or(""), candidates);
  return all;
}

AggregatePrompt aggregate_prompt(const AggregateTemplate& aggregate, const chat::ChatTemplate& chat,
                                 const Tokenizer& tokenizer, const chat::Conversation& problem,
                                 std::span<const Ids> candidates, std::optional<bool> enable_thinking) {
  std::vector<std::string> markers;
  for (size_t i = 0; i < candidates.size(); ++i) markers.push_back(marker(i));
  chat::RenderOptions options{.add_generation_prompt = true, .enable_thinking = enable_thinking};
  const chat::Rendered whole = chat.render(aggregate.conversation(problem, markers), options);
  AggregatePrompt prompt;
  prompt.ends_in_thinking = whole.ends_in_thinking;
  std::vector<std::pair<size_t, size_t>> places;  // in the text, candidate
  for (size_t i = 0; i < markers.size(); ++i) {
    const size_t at = whole.text.find(markers[i]);
    if (at == whole.text.npos || whole.text.find(markers[i], at + 1) != whole.text.npos)
      throw Error(fmt::format("{} does not show the user's message once", chat.name()),
                  "give another chat template");
    places.emplace_back(at, i);
  }
  std::sort(places.begin(), places.end());
  const auto add = [&](const Ids& ids) { prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end()); };
  size_t begin = 0;
  for (const auto& [at, candidate] : places) {
    add(chat.encode(part_of(whole, begin, at), tokenizer).ids);
    add(candidates[candidate]);
    begin = at + markers[candidate].size();
  }
  add(chat.encode(part_of(whole, begin, whole.text.size()), tokenizer).ids);
  return prompt;
}

Ids tail_of(std::span<const int32_t> ids, int64_t most, const Tokenizer& tokenizer) {
  size_t begin = ids.size();
  while (begin > 0 && static_cast<int64_t>(ids.size() - begin) < most &&
         !tokenizer.is_special(ids[begin - 1]))
    --begin;
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end()};
}

chat::Conversation aggregation_example(const AggregateTemplate& aggregate, const chat::Conversation& problem,
                                       std::span<const Candidate> candidates, const chat::Message& teacher,
                                       AggregationReply kind) {
  std::vector<std::string> texts;
  for (const Candidate& c : candidates) texts.push_back(c.text);
  chat::Conversation example = aggregate.conversation(problem, texts);
  if (kind == AggregationReply::solution) {
    example.messages.push_back(teacher);
    return example;
  }
  std::string reasoning;
  chat::Message reply = teacher;
  bool found = false;
  for (size_t i = 0; i < candidates.size() && !found; ++i) {
    found = candidates[i].right;
    reasoning +=
        fmt::format("{}[{}] {} {}", i == 0 ? "" : "\n", i + 1,
                    candidates[i].answer.empty() ? "nothing" : candidates[i].answer, found ? "yes" : "no");
    if (found) reply.content = candidates[i].answer;
  }
  if (!found && teacher.reasoning_content) reasoning += "\n" + *teacher.reasoning_content;
  reply.reasoning_content = std::move(reasoning);
  example.messages.push_back(std::move(reply));
  return example;
}

}  // namespace ingot::reason
