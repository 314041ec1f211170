// See generator.h.
#include "infer/generator.h"

#include <algorithm>

#include "tensor/convert.h"

namespace ingot {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t stream,
                     uint64_t index) {
  RowDraw d;
  d.logits = logits, d.vocab = static_cast<int64_t>(logits.size());
  d.sampling = options, d.stream = stream, d.position = index;
  const DrawnToken drawn = draw_token(d);
  if (drawn.error) throw *drawn.error;
  return drawn.id;
}

std::vector<TokenProbability> log_probabilities(std::span<const float> logits, int32_t id, int64_t k) {
  RowDraw d;
  d.logits = logits, d.vocab = static_cast<int64_t>(logits.size());
  d.sampling.temperature = 0, d.top = k, d.chosen = id;
  const DrawnToken drawn = draw_token(d);
  std::vector<TokenProbability> all{{id, drawn.logprob}};
  all.insert(all.end(), drawn.top.begin(), drawn.top.end());
  return all;
}

static void require_fits(const ModelConfig& model, int64_t tokens) {
  if (tokens > model.context)
    throw Error(fmt::format("the sequence would have {} tokens, but the model's context is {}", tokens,
                            model.context),
                "use a shorter prompt or fewer new tokens");
}

/// Reads a tensor of any floating type.
static void read_floats(const Tensor& t, std::vector<float>& values) {
  const auto n = static_cast<size_t>(t.numel());
  if (t.dtype() == DType::f32) return values.assign(t.as<float>(), t.as<float>() + n);
  if (t.dtype() == DType::bf16) {
    values.resize(n);
    for (size_t i = 0; i < n; ++i) values[i] = to_float(t.as<bf16>()[i]);
    return;
  }
  const std::vector<double> wide = to_doubles(t);
  values.assign(wide.begin(), wide.end());
}

/// The given rows of x as one tensor: a slice of x if they are consecutive, else a copy in `copies`.
static Tensor rows_of(const Tensor& x, const std::vector<int32_t>& rows, std::vector<std::byte>& copies) {
  const auto count = static_cast<int64_t>(rows.size());
  if (rows.back() - rows.front() == count - 1) return x.slice(rows.front(), rows.front() + count);
  for (const int32_t row : rows) {
    const Tensor one = x.slice(row, row + 1);
    const auto* bytes = static_cast<const std::byte*>(one.data);
    copies.insert(copies.end(), bytes, bytes + one.meta.bytes());
  }
  return Tensor(copies.data(), {count, x.dim(1)}, x.dtype());
}

/// The tokens of one batched forward pass.
struct Generator::Call {
  BatchLayout rows;
  std::vector<int32_t> ids, positions, last_rows;
};

Generator::Generator(const Model& model, int64_t max_pages, LatentDecoding latents)
    : model_(model),
      latents_(latents),
      store_(sequence_layout(model),
             max_pages > 0 ? max_pages : 8 * (SequenceStore::pages_for(model.config().context) + 1)) {}

void Generator::prepare(Context& c) const {
  c.absorb_latents = latents_ == LatentDecoding::absorbed;
  model_.equip(c);
}

const std::vector<std::vector<float>>& Generator::extend(std::span<SequenceState* const> sequences,
                                                         std::span<const std::span<const int32_t>> tokens) {
  INGOT_CHECK(sequences.size() == tokens.size());
  logits_.resize(sequences.size());
  if (sequences.empty()) return logits_;
  Call call;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto n = static_cast<int64_t>(tokens[s].size());
    INGOT_CHECK(n > 0, "nothing to append to sequence {}", s);
    const int64_t past = sequences[s]->tokens();
    require_fits(model_.config(), past + n);
    sequences[s]->reserve(n);
    call.rows.spans.push_back({call.rows.count, n, past, sequences[s]});
    call.rows.count += n;
    for (int64_t i = 0; i < n; ++i) call.positions.push_back(static_cast<int32_t>(past + i));
    call.ids.insert(call.ids.end(), tokens[s].begin(), tokens[s].end());
    call.last_rows.push_back(static_cast<int32_t>(call.rows.count) - 1);
  }
  Tape tape(arena_, {.record = false, .profile = profile_});
  Context c{tape, model_.weights(), &call.rows,
            tape.leaf(Tensor::of(call.positions.data(), {call.rows.count}))};
  prepare(c);
  const Value hidden_TD =
      model_.decoder().forward(c, tape.leaf(Tensor::of(call.ids.data(), {call.rows.count}))).hidden_TD;
  std::vector<std::byte> copies;
  const Value last_SD = tape.leaf(rows_of(hidden_TD.tensor(), call.last_rows, copies));
  const Value logits_SV = model_.decoder().logits(c, last_SD);  // one product for all: it reads the head once
  for (int64_t s = 0; s < last_SD.tensor().dim(0); ++s)
    read_floats(logits_SV.tensor().slice(s, s + 1), logits_[static_cast<size_t>(s)]);
  return logits_;
}

std::vector<float> Generator::score(SequenceState& sequence, std::span<const int32_t> tokens,
                                    std::span<const int32_t> targets) {
  INGOT_CHECK(tokens.size() == targets.size());
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t past = sequence.tokens();
  sequence.reserve(n);
  BatchLayout rows{n, {{0, n, past, &sequence}}};
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(past + i));
  Tape tape(arena_, {.record = false, .profile = profile_});
  Context c{tape, model_.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {n}))};
  prepare(c);
  const Value hidden_TD = model_.decoder().forward(c, tape.leaf(Tensor::of(tokens.data(), {n}))).hidden_TD;
  const HeadResult h = model_.decoder().head(c, {.mode = HeadMode::recompute}, hidden_TD,
                                             tape.leaf(Tensor::of(targets.data(), {n})));
  std::vector<float> logprobs;
  read_floats(h.logprob_T.tensor(), logprobs);
  return logprobs;
}

Continuation continue_prompt(const ModelConfig& model, int64_t past, std::span<const int32_t> prompt,
                             const GenerateOptions& options, const LogitsAfter& logits_after,
                             const std::function<bool(int32_t)>& on_token) {
  validate(options.sampling);
  INGOT_CHECK(!prompt.empty(), "an empty prompt");
  require_fits(model, past + static_cast<int64_t>(prompt.size()));
  std::span<const float> logits;
  for (size_t at = 0; at < prompt.size();) {
    const auto n = std::min(prompt.size() - at, static_cast<size_t>(options.prefill_chunk));
    logits = logits_after(prompt.subspan(at, n));
    at += n;
  }
  int64_t tokens = past + static_cast<int64_t>(prompt.size());
  Continuation out;
  while (static_cast<int64_t>(out.ids.size()) < options.max_tokens) {
    const auto drawn =
        static_cast<size_t>(options.vocab > 0 ? std::min(options.vocab, model.vocab) : model.vocab);
    logits = logits.first(drawn);
    const int32_t id = sample_token(logits, options.sampling, options.stream, static_cast<uint64_t>(tokens));
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end())
      return out.reason = EndReason::stop_id, out;
    if (options.on_draw) options.on_draw(logits, id);
    out.ids.push_back(id);
    if (on_token && !on_token(id)) return out.reason = EndReason::caller, out;
    if (static_cast<int64_t>(out.ids.size()) == options.max_tokens) break;
    if (tokens >= model.context) return out.reason = EndReason::context, out;
    logits = logits_after({&id, 1});
    ++tokens;
  }
  return out;
}

Continuation Generator::generate(SequenceState& sequence, std::span<const int32_t> prompt,
                                 const GenerateOptions& options,
                                 const std::function<bool(int32_t)>& on_token) {
  SequenceState* const one[] = {&sequence};
  const auto extend_one = [&](std::span<const int32_t> tokens) -> std::span<const float> {
    return extend(one, std::span(&tokens, 1)).front();
  };
  return continue_prompt(model_.config(), sequence.tokens(), prompt, options, extend_one, on_token);
}

}  // namespace ingot
