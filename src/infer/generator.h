// Generation with cached sequences: runs the forward pass of training without recording it. Logits and
// log-probabilities have the bits that training computes for the same tokens, however they are divided into
// calls; the one exception is LatentDecoding::absorbed. Not thread-safe.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "infer/engine.h"
#include "infer/sampling.h"
#include "models/model.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {

struct GenerateOptions {
  SamplingOptions sampling;
  uint64_t stream = 0;  ///< of random numbers: continuations with other streams are independent
  int64_t max_tokens = 128;
  std::vector<int32_t> stop_ids;  ///< end the generation; they are not returned
  int64_t prefill_chunk = 256;    ///< tokens of the prompt per forward pass
  int64_t vocab = 0;              ///< sample only ids below it (the tokenizer's size); 0: all of the model's
  /// Called with the logits that a token was drawn from, before on_token; not for a stop id.
  std::function<void(std::span<const float> logits, int32_t id)> on_draw;
};

/// What ended a generation.
enum class EndReason { stop_id, max_tokens, context, caller };

struct Continuation {
  std::vector<int32_t> ids;
  EndReason reason = EndReason::max_tokens;
};

/// Appends tokens to a sequence and returns the logits after the last of them, valid until the next call.
using LogitsAfter = std::function<std::span<const float>(std::span<const int32_t> tokens)>;

/// Continues a prompt that follows `past` tokens, and calls on_token for every new id. Stops at max_tokens,
/// at a stop id, at the end of the model's context, or when on_token returns false. Throws Error for a prompt
/// that the context cannot hold and for logits that are not finite.
Continuation continue_prompt(const ModelConfig& model, int64_t past, std::span<const int32_t> prompt,
                             const GenerateOptions& options, const LogitsAfter& logits_after,
                             const std::function<bool(int32_t)>& on_token = {});

/// draw_token() of one row; throws its error.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t stream,
                     uint64_t index);
/// The model's own log-probabilities: of `id`, then of the k most likely tokens.
std::vector<TokenProbability> log_probabilities(std::span<const float> logits, int32_t id, int64_t k);

class Generator {
 public:
  /// `model` must outlive the generator. `max_pages` bounds the cache, in pages of 64 tokens; 0: enough for 8
  /// sequences of the model's context.
  explicit Generator(const Model& model, int64_t max_pages = 0,
                     LatentDecoding latents = LatentDecoding::materialised);

  SequenceState new_sequence() { return store_.create(); }
  /// Appends tokens to sequences (one list per sequence, of any lengths) in one batched forward pass. Returns
  /// the fp32 logits after the last token of each sequence, [sequences][V], valid until the next call.
  const std::vector<std::vector<float>>& extend(std::span<SequenceState* const> sequences,
                                                std::span<const std::span<const int32_t>> tokens);
  /// Appends tokens to a sequence and returns the log-probability of targets[i] after tokens[i].
  std::vector<float> score(SequenceState& sequence, std::span<const int32_t> tokens,
                           std::span<const int32_t> targets);
  /// Continues a prompt in a cached sequence; see continue_prompt().
  Continuation generate(SequenceState& sequence, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const std::function<bool(int32_t)>& on_token = {});

  const Model& model() const { return model_; }
  /// Adds the time of each op to `profile` from now on; nullptr: stops.
  void set_profile(TapeProfile* profile) { profile_ = profile; }

 private:
  struct Call;
  void prepare(Context& c) const;
  const Model& model_;
  LatentDecoding latents_;
  SequenceStore store_;
  HeapArena arena_;
  std::vector<std::vector<float>>
      logits_;  ///< kept between calls: allocating a megabyte costs a page fault per page
  TapeProfile* profile_ = nullptr;
};

}  // namespace ingot
