// Environments of letters: reversing, counting, editing, closing brackets.
#include <fmt/core.h>

#include <algorithm>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

std::string letters(Dice& dice, int64_t count, int64_t alphabet) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += static_cast<char>('a' + dice.below(alphabet));
  return text;
}

Draft make_reverse(Dice& dice, int64_t difficulty) {
  std::string text = letters(dice, difficulty + 1, 26);
  while (text == std::string(text.rbegin(), text.rend())) text = letters(dice, difficulty + 1, 26);
  return {"reverse " + joined(text, " "),
          {{"text", text}, {"answer", joined(std::string(text.rbegin(), text.rend()), " ")}}};
}

/// The last letter of what is left is taken off; what is taken grows.
Trace solve_reverse(const Json& data, Dice& dice, TraceStyle style) {
  auto left = data.at("text").get<std::string>();
  std::string taken;
  Steps steps(dice, style);
  while (!left.empty()) {
    if (steps.slips() && left.size() > 1 && left.front() != left.back())
      steps.line(fmt::format("{}: {} ? {} no", left.front(), joined(left.substr(1), " "), left.back()));
    const char last = left.back();
    left.pop_back();
    taken += last;
    steps.line(fmt::format("{}: {}{}", last, joined(left, " "),
                           steps.checked() ? fmt::format(" ? {} yes", last) : ""));
  }
  return {steps.text(), joined(taken, " ")};
}

Draft make_count(Dice& dice, int64_t difficulty) {
  const std::string text = letters(dice, difficulty + 2, 4);
  const char letter = static_cast<char>('a' + dice.below(4));
  const auto count = std::count(text.begin(), text.end(), letter);
  return {fmt::format("count {} in {}", letter, joined(text, " ")),
          {{"letter", std::string(1, letter)}, {"text", text}, {"answer", std::to_string(count)}}};
}

Trace solve_count(const Json& data, Dice& dice, TraceStyle style) {
  const char letter = data.at("letter").get<std::string>()[0];
  Steps steps(dice, style);
  int64_t count = 0;
  for (const char c : data.at("text").get<std::string>()) {
    if (steps.slips())
      steps.line(fmt::format("{} {} {} ? {} no", c, c == letter ? "no" : "yes", count + (c == letter ? 0 : 1),
                             letter));
    count += c == letter ? 1 : 0;
    steps.line(fmt::format("{} {} {}", c,
                           steps.checked() ? fmt::format("{} {}", letter, c == letter ? "yes" : "no")
                           : c == letter   ? "yes"
                                           : "no",
                           count));
  }
  return {steps.text(), std::to_string(count)};
}

/// An edit of a text: "swap 1 3", "drop 2", "add x at 1", "turn 2 4" (reverses positions 2 to 4).
struct Edit {
  std::string kind;
  int64_t first = 0, second = 0;
  std::string letter;
  explicit Edit(const Json& e) : kind(e[0]), first(e[1]), second(e[2]), letter(e[3]) {}
  Edit(std::string k, int64_t a, int64_t b, std::string c)
      : kind(std::move(k)), first(a), second(b), letter(std::move(c)) {}
  Json json() const { return {kind, first, second, letter}; }
  std::string words() const {
    if (kind == "drop") return fmt::format("drop {}", first);
    if (kind == "add") return fmt::format("add {} at {}", letter, first);
    return fmt::format("{} {} {}", kind, first, second);
  }
  std::string applied(std::string text) const {
    const auto a = text.begin() + (first - 1);
    if (kind == "drop") text.erase(a);
    if (kind == "add") text.insert(a, letter[0]);
    if (kind == "swap") std::iter_swap(a, text.begin() + (second - 1));
    if (kind == "turn") std::reverse(a, text.begin() + second);
    return text;
  }
};

Draft make_edit(Dice& dice, int64_t difficulty) {
  const std::string text = letters(dice, 3 + (difficulty + 1) / 2, 26);
  std::string now = text, prompt = "edit " + joined(text, " ") + ":";
  Json edits = Json::array();
  for (int64_t i = 0; i < difficulty; ++i) {
    const auto size = static_cast<int64_t>(now.size());
    const std::string kind = size < 3 ? "add"
                                      : std::vector<std::string>{"swap", "drop", "add",
                                                                 "turn"}[static_cast<size_t>(dice.below(4))];
    int64_t first = dice.between(1, size), second = 0;
    if (kind == "swap" || kind == "turn")
      first = dice.between(1, size - 1), second = dice.between(first + 1, size);
    const Edit edit(kind, first, second, letters(dice, 1, 26));
    now = edit.applied(now);
    edits.push_back(edit.json());
    prompt += (i == 0 ? " " : "; ") + edit.words();
  }
  return {prompt, {{"text", text}, {"edits", edits}, {"answer", joined(now, " ")}}};
}

Trace solve_edit(const Json& data, Dice& dice, TraceStyle style) {
  auto text = data.at("text").get<std::string>();
  Steps steps(dice, style);
  for (const Json& e : data.at("edits")) {
    const Edit edit(e);
    const std::string before = text;
    text = edit.applied(text);
    std::string line = fmt::format("{}: {}", edit.words(), joined(text, " "));
    const int64_t change = edit.kind == "drop" ? -1 : edit.kind == "add" ? 1 : 0;
    const auto size = static_cast<int64_t>(before.size()), now = static_cast<int64_t>(text.size());
    if (steps.slips() && text.size() > 1)  // a letter is lost
      steps.line(fmt::format("{}: {} ? {}{:+} {} {} no", edit.words(), joined(text.substr(1), " "), size,
                             change, now, now - 1));
    if (steps.checked()) line += fmt::format(" ? {}{:+} {} {} yes", size, change, now, now);
    steps.line(line);
  }
  return {steps.text(), joined(text, " ")};
}

constexpr std::string_view kOpening = "([<", kClosing = ")]>";

/// The brackets that are still open, after each symbol.
std::vector<std::string> open_brackets(const std::string& text) {
  std::vector<std::string> open = {""};
  for (const char c : text) {
    std::string now = open.back();
    if (kOpening.find(c) != kOpening.npos)
      now += c;
    else
      now.pop_back();
    open.push_back(std::move(now));
  }
  return open;
}

std::string closing_of(const std::string& open) {
  std::string closing;
  for (auto c = open.rbegin(); c != open.rend(); ++c) closing += kClosing[kOpening.find(*c)];
  return closing;
}

Draft make_brackets(Dice& dice, int64_t difficulty) {
  std::string text, open;
  while (static_cast<int64_t>(text.size()) < difficulty + 1 || open.empty()) {
    if (!open.empty() && dice.below(5) < 2) {
      text += kClosing[kOpening.find(open.back())];
      open.pop_back();
    } else {
      open += kOpening[static_cast<size_t>(dice.below(3))];
      text += open.back();
    }
  }
  return {"close " + joined(text, " "), {{"text", text}, {"answer", joined(closing_of(open), " ")}}};
}

Trace solve_brackets(const Json& data, Dice& dice, TraceStyle style) {
  const auto text = data.at("text").get<std::string>();
  const std::vector<std::string> open = open_brackets(text);
  Steps steps(dice, style);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool closes = kOpening.find(text[i]) == kOpening.npos;
    if (steps.slips() && closes)  // the bracket is kept open
      steps.line(fmt::format("{}: {} {} ? {} {} no", text[i], joined(open[i], " "),
                             kOpening[kClosing.find(text[i])], open[i].size() + 1, open[i + 1].size()));
    std::string line =
        fmt::format("{}:{}{}", text[i], open[i + 1].empty() ? "" : " ", joined(open[i + 1], " "));
    if (steps.checked())
      line += fmt::format(" ? {} {} yes", open[i + 1].size(), open[i].size() + 1 - (closes ? 2 : 0));
    steps.line(line);
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

constexpr Family kStringFamilies[] = {
    {"reverse", "letters in reverse; answer: the letters", {1, 30}, make_reverse, same_words, solve_reverse},
    {"count",
     "how often a letter stands in others; answer: the number",
     {1, 40},
     make_count,
     same_integer,
     solve_count},
    {"edit",
     "swaps, drops, adds and turns letters; answer: the letters then",
     {1, 16},
     make_edit,
     same_words,
     solve_edit},
    {"brackets",
     "closes brackets that are open; answer: the closing ones",
     {1, 30},
     make_brackets,
     same_words,
     solve_brackets},
};

}  // namespace

std::span<const Family> string_families() {
  return kStringFamilies;
}

}  // namespace ingot::environments
