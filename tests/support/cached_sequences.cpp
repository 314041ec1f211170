// See cached_sequences.h.
#include "support/cached_sequences.h"

#include "tensor/convert.h"
#include "tensor/host_copy.h"

namespace ingot::test {

/// A forward pass of some sequences' next tokens.
struct CachedSequences::Call {
  BatchLayout rows;
  std::vector<int32_t> ids, positions;
  std::optional<Tape> tape;
  std::optional<Context> context;
  Value hidden_TD;

  void add(SequenceState& sequence, std::span<const int32_t> tokens) {
    const int64_t past = sequence.tokens();
    const auto count = static_cast<int64_t>(tokens.size());
    sequence.reserve(count);
    rows.spans.push_back({rows.count, count, past, &sequence});
    rows.count += count;
    for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(past + i));
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
  void run(const Model& model, HeapArena& arena, DeviceKind device, LatentDecoding latents) {
    tape.emplace(arena, TapeOptions{.device = device, .record = false});
    context.emplace(
        Context{*tape, model.weights(), &rows, tape->leaf(Tensor::of(positions.data(), {rows.count}))});
    context->absorb_latents = latents == LatentDecoding::absorbed;
    model.equip(*context);
    hidden_TD = model.decoder().forward(*context, tape->leaf(Tensor::of(ids.data(), {rows.count}))).hidden_TD;
  }
};

CachedSequences::CachedSequences(const Model& model, int64_t pages, LatentDecoding latents, DeviceKind device)
    : model_(model),
      latents_(latents),
      store_(sequence_layout(model), pages),
      device_(device),
      arena_(device_of(device)) {}

static std::vector<float> floats(const Tensor& t) {
  const std::vector<double> wide = to_doubles(HostCopy(t).tensor());
  return {wide.begin(), wide.end()};
}

std::vector<std::vector<float>> CachedSequences::extend(std::span<SequenceState* const> sequences,
                                                        std::span<const std::span<const int32_t>> tokens) {
  Call call;
  for (size_t s = 0; s < sequences.size(); ++s) call.add(*sequences[s], tokens[s]);
  call.run(model_, arena_, device_, latents_);
  std::vector<std::vector<float>> logits;
  for (const SequenceSpan& s : call.rows.spans) {
    const int64_t last = s.row_begin + s.rows - 1;
    const Value row = call.tape->leaf(call.hidden_TD.tensor().slice(last, last + 1));
    logits.push_back(floats(model_.decoder().logits(*call.context, row).tensor()));
  }
  return logits;
}

std::vector<float> CachedSequences::score(SequenceState& sequence, std::span<const int32_t> tokens,
                                          std::span<const int32_t> targets) {
  Call call;
  call.add(sequence, tokens);
  call.run(model_, arena_, device_, latents_);
  const Value targets_T = call.tape->leaf(Tensor::of(targets.data(), {static_cast<int64_t>(targets.size())}));
  return floats(model_.decoder()
                    .head(*call.context, {.mode = HeadMode::recompute}, call.hidden_TD, targets_T)
                    .logprob_T.tensor());
}

}  // namespace ingot::test
