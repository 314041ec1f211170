// See loss_spans.h.
#include "chat/loss_spans.h"

#include <algorithm>

namespace ingot::chat {
namespace {

/// Bytes that a message of the assistant wrote, and the template's text around them.
struct Hull {
  size_t begin, end;
  size_t from, until;
  int32_t message;
};

bool is_assistant(Source s) {
  return s == Source::reasoning || s == Source::content || s == Source::tool_call;
}

/// Where generation would have started before byte `first`; the text from `from` to there is the template's.
size_t opening_end(const std::string& text, size_t from, size_t first, int32_t message,
                   const TurnBorders& borders) {
  const std::string_view before = std::string_view(text).substr(from, first - from);
  size_t end = std::string_view::npos;
  for (const std::string* opening : {&borders.opening, &borders.header}) {
    const size_t at = opening->empty() ? std::string_view::npos : before.rfind(*opening);
    if (at == std::string_view::npos) continue;
    end = at + opening->size();
    break;
  }
  if (end == std::string_view::npos) {
    const auto tail = borders.prompt_tail ? borders.prompt_tail(message) : std::nullopt;
    return tail && before.starts_with(*tail) ? from + tail->size() : first;
  }
  for (const std::string& e : borders.ends)  // of a turn in which the assistant says nothing
    if (const size_t at = e.empty() ? std::string_view::npos : before.rfind(e); at != std::string_view::npos)
      end = std::max(end, at + e.size());
  return from + end;
}

/// Where the turn ends behind byte `last`; the text from there to `until` is the template's.
size_t turn_end(const std::string& text, size_t last, size_t until, const TurnBorders& borders) {
  const std::string_view behind = std::string_view(text).substr(last, until - last);
  size_t best = std::string_view::npos, end = last;
  for (const std::string& e : borders.ends) {
    const size_t at = e.empty() ? std::string_view::npos : behind.find(e);
    if (at < best) {
      best = at;
      end = last + at + e.size();
    }
  }
  return end;
}

/// Whether the template, between two texts of one message, ended the assistant's turn for good: what follows
/// is another turn that repeats some of it, such as the name of the tool that was called.
bool turn_is_over(std::string_view between, const TurnBorders& borders) {
  for (const std::string& e : borders.ends) {
    const size_t at = e.empty() ? std::string_view::npos : between.find(e);
    if (at != std::string_view::npos && between.find(borders.header, at + e.size()) == std::string_view::npos)
      return true;
  }
  return false;
}

/// {% generation %} blocks of neighbouring messages touch; each message gets its part, with its own
/// weight.
std::vector<ByteSpan> parts_of_messages(const std::vector<ByteSpan>& generated,
                                        const std::vector<Hull>& hulls, const std::string& text,
                                        const TurnBorders& borders) {
  std::vector<ByteSpan> out;
  for (ByteSpan span : generated) {
    for (size_t i = 0; i + 1 < hulls.size(); ++i) {
      const Hull &h = hulls[i], &next = hulls[i + 1];
      if (h.begin < span.begin || next.end > span.end) continue;
      size_t cut = turn_end(text, h.end, next.begin, borders);
      const size_t header = borders.header.empty() ? text.size() : text.find(borders.header, cut);
      if (header < next.begin) cut = header;
      out.push_back({span.begin, cut});
      span.begin = cut;
    }
    out.push_back(span);
  }
  return out;
}

}  // namespace

std::vector<ByteSpan> loss_spans(const Conversation& conversation, const Rendered& rendered,
                                 const TurnBorders& borders, const std::vector<ByteSpan>& generated) {
  std::vector<Hull> hulls;
  size_t written = 0;  // end of the last run that is not the template's
  for (const Run& run : rendered.runs) {
    if (run.source == Source::template_text) continue;
    if (!hulls.empty() && hulls.back().until == rendered.text.size() && run.message != hulls.back().message)
      hulls.back().until = run.begin;
    if (is_assistant(run.source)) {
      const bool same = !hulls.empty() && hulls.back().message == run.message;
      const bool others_spoke = same && written > hulls.back().end;
      if (same &&
          (others_spoke ||
           turn_is_over(std::string_view(rendered.text).substr(written, run.begin - written), borders)))
        hulls.back().until = std::min(hulls.back().until, run.begin);
      else if (same)
        hulls.back().end = run.end;
      else
        hulls.push_back({run.begin, run.end, written, rendered.text.size(), run.message});
    }
    written = run.end;
  }
  std::vector<ByteSpan> out;
  const auto in_loss = [&](int32_t message) {
    return conversation.messages[static_cast<size_t>(message)].in_loss;
  };
  if (!generated.empty()) {
    for (const ByteSpan& span : parts_of_messages(generated, hulls, rendered.text, borders)) {
      const auto inside = [&](const Hull& h) {
        return h.begin < span.end && h.end > span.begin && !in_loss(h.message);
      };
      if (std::none_of(hulls.begin(), hulls.end(), inside)) out.push_back(span);
    }
    return out;
  }
  for (const Hull& h : hulls) {
    if (!in_loss(h.message)) continue;
    const size_t begin = opening_end(rendered.text, h.from, h.begin, h.message, borders);
    out.push_back({begin, turn_end(rendered.text, h.end, h.until, borders)});
  }
  return out;
}

}  // namespace ingot::chat
