// Log-probabilities of the tokens of documents by training's forward pass and by cached sequences, on any
// device: what tests compare that say that these are one function.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "support/cached_sequences.h"
#include "support/small_models.h"
#include "tensor/host_copy.h"
#include "train/step.h"

namespace ingot::test {

using Bits = std::vector<float>;

inline bool same(const Bits& a, const Bits& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline Bits part(const Bits& all, int64_t begin, size_t count) {
  return {all.begin() + begin, all.begin() + begin + static_cast<int64_t>(count)};
}

/// Of the training forward over all tokens of a batch (recording on, as a step runs it).
inline Bits training_logprobs(Model& model, const data::Batch& batch, HeadMode mode,
                              DeviceKind device = DeviceKind::cpu) {
  HeapArena arena(device_of(device));
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  Tape tape(arena, {.device = device, .sink = &gradients});
  MicroBatch mb = micro_batch(batch, 0, batch.rows);
  // Where blocks of windows begin is data, like positions: here with the document, as in a cached sequence.
  for (SequenceSpan& s : mb.rows.spans) s.phase = 0;
  Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
  model.equip(c);
  const Value hidden_TD = model.decoder().forward(c, tape.leaf(mb.ids)).hidden_TD;
  const HeadResult h = model.decoder().head(c, {.mode = mode}, hidden_TD, tape.leaf(mb.targets));
  const HostCopy logprobs(h.logprob_T.tensor());
  const auto* p = logprobs.as<float>();
  return Bits(p, p + mb.rows.count);
}

struct Document {
  std::vector<int32_t> tokens, targets;
  int64_t begin;  ///< in its batch
};

inline std::vector<Document> documents_of(const data::Batch& b) {
  std::vector<Document> all;
  for (const data::Span& s : b.spans)
    all.push_back({{b.tokens.begin() + s.begin, b.tokens.begin() + s.end},
                   {b.targets.begin() + s.begin, b.targets.begin() + s.end},
                   s.begin});
  return all;
}
/// Documents one after another in rows of the same length.
inline data::Batch batch_of(const std::vector<Document>& documents, int64_t rows) {
  data::Batch b;
  for (const Document& d : documents) {
    const auto at = static_cast<int32_t>(b.tokens.size()), n = static_cast<int32_t>(d.tokens.size());
    b.spans.push_back({at, at + n});
    b.tokens.insert(b.tokens.end(), d.tokens.begin(), d.tokens.end());
    b.targets.insert(b.targets.end(), d.targets.begin(), d.targets.end());
    for (int32_t p = 0; p < n; ++p) b.positions.push_back(p);
  }
  b.rows = rows;
  b.sequence_length = static_cast<int64_t>(b.tokens.size()) / rows;
  return b;
}

/// Of one document, scored in chunks.
inline Bits scored(CachedSequences& g, const Document& d, size_t chunk) {
  SequenceState state = g.create();
  Bits out;
  for (size_t at = 0; at < d.tokens.size(); at += chunk) {
    const size_t n = std::min(chunk, d.tokens.size() - at);
    const Bits lp = g.score(state, {d.tokens.data() + at, n}, {d.targets.data() + at, n});
    out.insert(out.end(), lp.begin(), lp.end());
  }
  return out;
}

}  // namespace ingot::test
