// Renderings as ids (chat_template.h): control tokens where the template wrote them, and the mask.
#include <algorithm>

#include "chat/chat_template_impl.h"

namespace ingot::chat {
namespace {

/// The text as a whole; a token is in the loss that begins in one of the spans. Nothing if the tokenizer
/// changes text.
std::optional<Encoded> encode_whole(const Rendered& r, const Tokenizer& tokenizer) {
  Encoded out;
  out.ids = tokenizer.encode(r.text, {.parse_special = true});
  size_t at = 0;
  auto span = r.loss_spans.begin();
  for (const int32_t id : out.ids) {
    while (span != r.loss_spans.end() && span->end <= at) ++span;
    out.in_loss.push_back(span != r.loss_spans.end() && span->begin <= at);
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (std::string_view(r.text).substr(std::min(at, r.text.size()), bytes.size()) != bytes)
      return std::nullopt;
    at += bytes.size();
  }
  if (at != r.text.size()) return std::nullopt;
  return out;
}

}  // namespace

Encoded ChatTemplate::encode(const Rendered& r, const Tokenizer& tokenizer, Trust trust) const {
  if (trust == Trust::messages)
    if (auto whole = encode_whole(r, tokenizer)) return *whole;
  std::vector<SpecialRange> template_text;
  for (const Run& run : r.runs)
    if (run.source == Source::template_text) template_text.push_back({run.begin, run.end});
  Encoded out;
  size_t at = 0;
  const auto part = [&](size_t end, bool in_loss) {
    if (end <= at) return;
    std::vector<SpecialRange> ranges;
    for (const SpecialRange& s : template_text)
      if (s.end > at && s.begin < end)
        ranges.push_back({std::max(s.begin, at) - at, std::min(s.end, end) - at});
    tokenizer.encode_to(std::string_view(r.text).substr(at, end - at),
                        {.parse_special = true, .special_ranges = trust == Trust::own ? &ranges : nullptr},
                        out.ids);
    out.in_loss.resize(out.ids.size(), in_loss);
    at = end;
  };
  for (const ByteSpan& span : r.loss_spans) {
    part(span.begin, false);
    part(span.end, true);
  }
  part(r.text.size(), false);
  return out;
}

std::vector<int32_t> ChatTemplate::prompt_ids(const Conversation& conversation, const Tokenizer& tokenizer,
                                              RenderOptions options, Trust trust) const {
  options.add_generation_prompt = true;
  return encode(render(conversation, options), tokenizer, trust).ids;
}

}  // namespace ingot::chat
