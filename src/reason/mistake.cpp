// See mistake.h.
#include "reason/mistake.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "environments/answer.h"
#include "environments/dice.h"

namespace ingot::reason {
namespace {

using environments::Dice;

constexpr int kMostDraws = 32;

/// The answer's words; its letters where it is one word.
struct AnswerParts {
  std::vector<std::string> parts;
  std::string between;
  explicit AnswerParts(const std::string& answer) {
    const bool words = answer.find(' ') != answer.npos;
    between = words ? " " : "";
    for (size_t at = 0; at < answer.size();) {
      const size_t end = words ? std::min(answer.find(' ', at), answer.size()) : at + 1;
      parts.push_back(answer.substr(at, end - at));
      at = words ? end + 1 : end;
    }
  }
  std::string text() const {
    std::string all;
    for (const std::string& part : parts) all += (all.empty() ? "" : between) + part;
    return all;
  }
};

/// Another digit or letter, near the first.
char another(char c, Dice& dice) {
  const auto turned = [&](char first, int64_t count, int64_t step) {
    return static_cast<char>(first + (c - first + count + step) % count);
  };
  const int64_t step = (dice.once_in(2) ? 1 : -1) * dice.between(1, 2);
  if (c >= '0' && c <= '9') return turned('0', 10, step);
  if (c >= 'a' && c <= 'z') return turned('a', 26, step);
  if (c >= 'A' && c <= 'Z') return turned('A', 26, step);
  return c;
}

/// `text` with one of its digits and letters changed; the same where it has none.
std::string with_another_character(std::string text, Dice& dice) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i)
    if (std::isalnum(static_cast<unsigned char>(text[i])) != 0) places.push_back(i);
  if (!places.empty()) {
    char& c = text[dice.pick(places)];
    c = another(c, dice);
  }
  return text;
}

/// Where `word` stands last in `text`, between what is no part of a word; npos where nowhere.
size_t last_word(const std::string& text, const std::string& word) {
  const auto inside = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.rfind(word); at != text.npos; at = at == 0 ? text.npos : text.rfind(word, at - 1))
    if ((at == 0 || !inside(at - 1)) && !inside(at + word.size())) return at;
  return text.npos;
}

/// `text` with the word as another in its last line that has it, wherever it stands there; nothing where none
/// has it or the two are the same.
std::optional<std::string> with_other_word(const std::string& text, const std::string& word,
                                           const std::string& other) {
  const size_t at = last_word(text, word);
  if (at == text.npos || word == other) return {};
  const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const size_t end = std::min(text.find('\n', at), text.size());
  std::string line = text.substr(begin, end - begin);
  for (size_t place = last_word(line, word); place != line.npos; place = last_word(line, word))
    line.replace(place, word.size(), other);
  return text.substr(0, begin) + line + text.substr(end);
}

/// One draw; nothing where the changed word is not in the reasoning and has to be.
std::optional<chat::Message> changed(const chat::Message& right, bool in_reasoning, Dice& dice) {
  chat::Message reply = right;
  const std::string answer = right.content.value_or("");
  AnswerParts split(answer);
  auto& parts = split.parts;
  if (parts.empty()) return {};
  if (in_reasoning) {
    const std::vector<std::string> words = environments::words_of(answer);
    const std::string& word = dice.pick(words);
    const std::string wrong = with_another_character(word, dice);
    const size_t in_answer = last_word(answer, word);
    std::optional<std::string> reasoning = with_other_word(right.reasoning_content.value_or(""), word, wrong);
    if (!reasoning || in_answer == answer.npos) return {};
    reply.content = answer;
    reply.content->replace(in_answer, word.size(), wrong);
    reply.reasoning_content = std::move(reasoning);
    return reply;
  }
  const auto place = static_cast<size_t>(dice.below(static_cast<int64_t>(parts.size())));
  const auto other = static_cast<size_t>(dice.below(static_cast<int64_t>(parts.size())));
  const auto here = parts.begin() + static_cast<std::ptrdiff_t>(place);
  switch (dice.below(4)) {
    case 0:
      std::swap(parts[place], parts[other]);
      break;
    case 1:
      parts.erase(here);
      break;
    case 2:
      parts.insert(here, *here);
      break;
    default:
      *here = with_another_character(*here, dice);
  }
  reply.content = split.text();
  return reply;
}

}  // namespace

std::optional<chat::Message> with_mistake(const environments::Environment& environment,
                                          const environments::Problem& problem, const chat::Message& right,
                                          bool in_reasoning, const Random& random) {
  if (environments::words_of(right.content.value_or("")).empty()) return {};
  Dice dice(random);
  for (int draw = 0; draw < kMostDraws; ++draw) {
    std::optional<chat::Message> reply = changed(right, in_reasoning, dice);
    if (!reply) continue;
    const environments::Verdict verdict = environment.judge(problem, *reply);
    if (verdict.reward < 1 && !verdict.infrastructure && !verdict.answer.empty()) return reply;
  }
  return {};
}

}  // namespace ingot::reason
