// See text_replay.h.
#include "post/rl/text_replay.h"

#include <limits>

#include "base/error.h"

namespace ingot {

void append_text(const data::Batch& text, double weight, data::Batch& batch) {
  INGOT_CHECK(text.sequence_length == batch.sequence_length && batch.divisor > 0);
  if (text.valid_targets == 0) return;
  const auto factor = static_cast<float>(weight * batch.divisor / static_cast<double>(text.valid_targets));
  const auto shift = static_cast<int32_t>(batch.tokens.size());
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(batch.tokens, text.tokens);
  append(batch.targets, text.targets);
  append(batch.positions, text.positions);
  for (const data::Span& s : text.spans) batch.spans.push_back({s.begin + shift, s.end + shift});
  for (const data::DocumentPiece& p : text.pieces)
    batch.pieces.push_back({p.begin + shift, p.end + shift, p.document});
  data::TokenColumns& c = batch.columns;
  for (const int32_t target : text.targets) {
    const bool in_loss = target >= 0;
    c.weight.push_back(in_loss ? factor : 0);
    c.advantage.push_back(in_loss ? 1 : 0);
    c.recorded.push_back(in_loss ? std::numeric_limits<float>::quiet_NaN() : 0);
    c.cotangent.push_back(in_loss ? -factor : 0);
  }
  if (!c.reference.empty()) c.reference.resize(batch.tokens.size(), 0);
  c.sequence.resize(batch.tokens.size(), -1);
  c.version.resize(batch.tokens.size(), -1);
  if (!batch.allowed.empty()) batch.allowed.resize(2 * batch.tokens.size(), 0);
  batch.rows += text.rows;
  batch.valid_targets += text.valid_targets;
}

TextReplay::TextReplay(const SourceContext& context)
    : rows_(context.config().rl->replay.rows),
      weight_(context.config().rl->replay.weight),
      sampler_(phase_sources(context.recipe(), context.data, context.config()),
               {.seed = static_cast<uint64_t>(context.recipe().run.seed),
                .sequence_length = context.config().sequence,
                .rows = context.recipe().data.rows()}) {}

void TextReplay::append(int64_t step, data::Batch& batch) const {
  append_text(sampler_.batch(step * rows_, rows_), weight_, batch);
}

}  // namespace ingot
