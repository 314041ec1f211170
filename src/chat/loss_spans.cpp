// See loss_spans.h.
#include "chat/loss_spans.h"

#include <algorithm>

namespace ingot::chat {
namespace {

bool is_assistant(Source s) {
  return s == Source::reasoning || s == Source::content || s == Source::tool_call;
}

/// Where generation would have started before byte `first`; the text from `from` to there is the template's.
size_t opening_end(const std::string& text, size_t from, size_t first, const TurnBorders& borders) {
  const std::string_view before = std::string_view(text).substr(from, first - from);
  for (const std::string* opening : {&borders.opening, &borders.header}) {
    if (opening->empty()) continue;
    const size_t at = before.rfind(*opening);
    if (at != std::string_view::npos) return from + at + opening->size();
  }
  return first;
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

}  // namespace

std::vector<ByteSpan> loss_spans(const Conversation& conversation, const Rendered& rendered,
                                 const TurnBorders& borders, const std::vector<ByteSpan>& generated) {
  struct Hull {
    size_t begin, end;   // bytes that the message wrote
    size_t from, until;  // the template's text around them
    int32_t message;
  };
  std::vector<Hull> hulls;
  size_t written = 0;  // end of the last run that is not the template's
  for (const Run& run : rendered.runs) {
    if (run.source == Source::template_text) continue;
    if (!hulls.empty() && hulls.back().until == rendered.text.size() && run.message != hulls.back().message)
      hulls.back().until = run.begin;
    if (is_assistant(run.source)) {
      if (!hulls.empty() && hulls.back().message == run.message)
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
    for (const ByteSpan& span : generated) {
      const auto inside = [&](const Hull& h) {
        return h.begin < span.end && h.end > span.begin && !in_loss(h.message);
      };
      if (std::none_of(hulls.begin(), hulls.end(), inside)) out.push_back(span);
    }
    return out;
  }
  for (const Hull& h : hulls) {
    if (!in_loss(h.message)) continue;
    const size_t begin = opening_end(rendered.text, h.from, h.begin, borders);
    out.push_back({begin, turn_end(rendered.text, h.end, h.until, borders)});
  }
  return out;
}

}  // namespace ingot::chat
