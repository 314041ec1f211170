// Generation with cached sequences: the training forward with recording off. Log-probabilities and logits are the bits
// that training would compute for the same tokens, in any chunking (latent attention: unless it is asked to absorb).
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "infer/sampling.h"
#include "models/model.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = 128;
  std::vector<int32_t> stop_ids;  ///< generation ends after one of these (it is not returned)
  int64_t prefill_chunk = 256;
  int64_t vocab =
      0;  ///< only ids below it are drawn: the tokenizer's size, where the model's is larger. 0: the model's
};

/// How latent attention reads its cache, which holds latents either way. materialised: keys and values are made again,
/// with the bits of training. absorbed: attention in the latent space, much less work per cached token, other roundings.
enum class LatentDecoding { materialised, absorbed };

/// Appends tokens to a sequence and returns the logits behind the last of them, valid until the next call.
using LogitsAfter = std::function<std::span<const float>(std::span<const int32_t> tokens)>;

/// Continues a prompt behind `past` tokens; calls on_token for every new id. Stops at max_tokens, a stop id, the model's
/// context, or when on_token returns false.
std::vector<int32_t> continue_prompt(const ModelConfig& model, int64_t past, std::span<const int32_t> prompt,
                                     const GenerateOptions& options, const LogitsAfter& logits_after,
                                     const std::function<bool(int32_t)>& on_token = {});

/// What a sequence of the model keeps.
SequenceLayout sequence_layout(const Model& model);

class Generator {
 public:
  /// `model` must outlive the generator. `max_pages` bounds cache memory (pages of 64 tokens); 0: enough for 8 sequences
  /// of the model's context.
  explicit Generator(const Model& model, int64_t max_pages = 0,
                     LatentDecoding latents = LatentDecoding::materialised);

  SequenceState new_sequence() { return store_.create(); }
  /// Appends tokens to sequences (one list per sequence, any lengths) in one batched forward. Returns the logits after
  /// the last token of each: [sequences][rows of the head], in fp32, valid until the next call.
  const std::vector<std::vector<float>>& extend(std::span<SequenceState* const> sequences,
                                                std::span<const std::span<const int32_t>> tokens);
  /// Log-probabilities of targets[i] after each token of one sequence's extension (scoring).
  std::vector<float> score(SequenceState& sequence, std::span<const int32_t> tokens,
                           std::span<const int32_t> targets);
  /// continue_prompt() of a cached sequence.
  std::vector<int32_t> generate(SequenceState& sequence, std::span<const int32_t> prompt,
                                const GenerateOptions& options,
                                const std::function<bool(int32_t)>& on_token = {});

  const Model& model() const { return model_; }
  /// Adds up time by op from now on; nullptr: no more.
  void set_profile(TapeProfile* profile) { profile_ = profile; }

 private:
  struct Call;
  void prepare(Context& c) const;
  const Model& model_;
  LatentDecoding latents_;
  SequenceStore store_;
  HeapArena arena_;
  std::vector<std::vector<float>>
      logits_;  ///< kept: a vocabulary's are a megabyte, which the system would give and take
  TapeProfile* profile_ = nullptr;
};

}  // namespace ingot
