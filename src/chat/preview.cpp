// See preview.h.
#include "chat/preview.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/terminal_text.h"

namespace ingot::chat {
namespace {

constexpr std::string_view kGreen = "\x1b[32m", kRed = "\x1b[31m", kDim = "\x1b[2m", kEndColour = "\x1b[0m";
constexpr size_t kCells = size_t{1} << 22;  // of the table of common lines; beyond, lines are not aligned

/// Calls visit(text, run, in_loss) for stretches of one writer, inside or outside of the loss.
template <class Visit>
void for_stretches(const Rendered& r, const Visit& visit) {
  auto span = r.loss_spans.begin();
  for (const Run& run : r.runs)
    for (size_t at = run.begin; at < run.end;) {
      while (span != r.loss_spans.end() && span->end <= at) ++span;
      const bool in_loss = span != r.loss_spans.end() && span->begin <= at;
      const size_t next = span == r.loss_spans.end() ? run.end : in_loss ? span->end : span->begin;
      const size_t end = std::min(run.end, next);
      visit(std::string_view(r.text).substr(at, end - at), run, in_loss);
      at = end;
    }
}

std::string with_marks(const Rendered& r) {
  std::string out = r.text;
  for (auto s = r.loss_spans.rbegin(); s != r.loss_spans.rend(); ++s) {
    out.insert(s->end, kLossEnds);
    out.insert(s->begin, kLossBegins);
  }
  return out;
}

std::string on_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

/// The lines that two lists have in common, as pairs of positions in order: a longest such list.
std::vector<std::pair<size_t, size_t>> common_lines(const std::vector<std::string_view>& a,
                                                    const std::vector<std::string_view>& b) {
  std::vector<std::pair<size_t, size_t>> out;
  size_t begin = 0, a_end = a.size(), b_end = b.size();
  while (begin < std::min(a_end, b_end) && a[begin] == b[begin]) out.emplace_back(begin, begin), ++begin;
  std::vector<std::pair<size_t, size_t>> tail;
  while (a_end > begin && b_end > begin && a[a_end - 1] == b[b_end - 1]) tail.emplace_back(--a_end, --b_end);
  const size_t rows = a_end - begin, columns = b_end - begin;
  if (rows > 0 && columns > 0 && rows * columns <= kCells) {
    std::vector<uint32_t> length((rows + 1) * (columns + 1), 0);  // of the longest list from (i, j) on
    const auto at = [&](size_t i, size_t j) -> uint32_t& { return length[i * (columns + 1) + j]; };
    for (size_t i = rows; i-- > 0;)
      for (size_t j = columns; j-- > 0;)
        at(i, j) = a[begin + i] == b[begin + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
    for (size_t i = 0, j = 0; i < rows && j < columns;) {
      if (a[begin + i] == b[begin + j])
        out.emplace_back(begin + i++, begin + j++);
      else if (at(i + 1, j) >= at(i, j + 1))
        ++i;
      else
        ++j;
    }
  }
  out.insert(out.end(), tail.rbegin(), tail.rend());
  return out;
}

}  // namespace

std::string preview(const Rendered& r, Shown shown) {
  if (shown == Shown::marks) return with_marks(r);
  std::string out;
  for_stretches(r, [&](std::string_view text, const Run& run, bool in_loss) {
    const bool dim = !in_loss && run.source == Source::template_text;
    if (in_loss || dim) out += in_loss ? kGreen : kDim;
    out += terminal_text(text);
    if (in_loss || dim) out += kEndColour;
  });
  return out;
}

static std::string line_difference(const std::string& a_text, const std::string& b_text, Shown shown) {
  if (a_text == b_text) return "";
  const auto a = lines_of(a_text), b = lines_of(b_text);
  std::string out;
  const auto line = [&](char sign, std::string_view text) {
    const bool colour = shown == Shown::colour && sign != ' ';
    const bool ended = text.ends_with('\n');
    text.remove_suffix(ended ? 1 : 0);
    if (colour) out += sign == '-' ? kRed : kGreen;
    out += sign;
    out += shown == Shown::colour ? terminal_text(text) : std::string(text);
    if (colour) out += kEndColour;
    out += '\n';
    if (!ended) out += "\\ (no newline at the end)\n";
  };
  size_t i = 0, j = 0;
  const auto until = [&](size_t a_end, size_t b_end) {
    while (i < a_end) line('-', a[i++]);
    while (j < b_end) line('+', b[j++]);
  };
  for (const auto& [in_a, in_b] : common_lines(a, b)) {
    until(in_a, in_b);
    line(' ', a[i++]);
    ++j;
  }
  until(a.size(), b.size());
  return out;
}

std::string difference(const Rendered& first, const Rendered& second, Shown shown) {
  return line_difference(with_marks(first), with_marks(second), shown);
}

std::string description(const ChatTemplate& t) {
  std::string out;
  for (const auto& thinking : {std::optional<bool>(), std::optional<bool>(false)}) {
    Conversation question;
    question.messages = {text_message("user", "q")};
    std::string prompt;
    try {
      const std::string without = t.render(question, {.enable_thinking = thinking}).text;
      prompt = t.render(question, {.add_generation_prompt = true, .enable_thinking = thinking}).text;
      if (prompt.starts_with(without)) prompt.erase(0, without.size());
    } catch (const Error& e) {
      prompt = e.what();
    }
    out += fmt::format("generation prompt{}: {}\n", thinking ? " without thinking" : "", on_one_line(prompt));
  }
  return out + fmt::format("end of a turn: {}\ntool calls: {}\n", on_one_line(t.end_of_turn()),
                           name_of(t.reply_format().tools));
}

std::string difference(const ChatTemplate& first, const ChatTemplate& second, Shown shown) {
  return line_difference(description(first), description(second), shown);
}

}  // namespace ingot::chat
