// What one asks of the engine, and what it reports: plain data. One request is a prompt and n samples that
// continue it; scoring a text is a request without new tokens that reports the prompt's log-probabilities.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "infer/sampling.h"
#include "infer/thinking.h"

namespace ingot {

/// What a request reports beside its tokens.
struct ReportOptions {
  /// First token of the prompt whose log-probability is reported; -1: none. The first token of a text has
  /// none: 0 is the same as 1. A cached prefix before it is used; one after it is recomputed.
  int64_t prompt_from = -1;
  int64_t top = 0;      ///< most likely ids in a token's place, of the prompt (as far as reported) and output
  bool kept = false;    ///< the ids that top-k, top-p and min-p kept
  bool routes = false;  ///< the experts of each token's row, the prompt's included, which is computed whole
};

struct Request {
  std::vector<int32_t> prompt;  ///< at least one id
  SamplingOptions sampling;
  /// Random numbers are Philox(sampling.seed, stream of (key, sample))[position]: a sample is a function of
  /// prompt, weights, sampling, key and its number, whatever else runs.
  uint64_t key = 0;
  int64_t n = 1;             ///< samples: one prefill, n forks
  int64_t first_sample = 0;  ///< number of the first
  int64_t max_tokens = 128;  ///< new tokens at most, a stop id not counted; 0: the prompt is only scored
  std::vector<int32_t> stop_ids;
  std::vector<std::string> stop_strings;  ///< end a sample before this text
  ThinkingBudget thinking;
  ReportOptions report;
};

using RequestId = uint64_t;

/// What ended a sample. failed: Finished::error says why.
enum class FinishReason : uint8_t { stop_id, stop_string, max_tokens, context, cancelled, failed };
constexpr auto enum_names(FinishReason) {
  return names_in_order<FinishReason>("end_token", "stop", "max_tokens", "context", "cancelled", "failed");
}

/// A new token of a sample. Spans and views live until the sink returns.
struct TokenEvent {
  RequestId request = 0;
  int64_t sample = 0;
  int64_t position = 0;  ///< tokens of the sequence before it
  int32_t id = 0;
  /// Its exact bytes; empty without a tokenizer.
  std::string_view bytes;
  /// What can be shown by now: whole characters, without what may become a stop string. The texts of a
  /// sample, with Finished::text, are its answer. Empty without a tokenizer.
  std::string text;
  /// By the model itself, with the bits that training's head computes for this token.
  float logprob = 0;
  /// Of the distribution that it was drawn from: with temperature, over the kept ids. Greedy: logprob.
  float sampled_logprob = 0;
  std::span<const TokenProbability> top;  ///< by the model itself, the most likely first
  std::span<const int32_t> kept;          ///< ascending; empty where nothing filters
  std::span<const uint16_t>
      routes;             ///< [MoE layers][top_k]: the experts of the row that the id was drawn after
  bool forced = false;    ///< a closing id of the thinking budget: chosen by rule, not drawn
  bool stop = false;      ///< one of the stop ids: the sample's last token, without text
  bool thinking = false;  ///< inside the thinking, its marks included
  uint64_t weights = 0;   ///< version of the weights that it was drawn by
};

/// What was asked for of the prompt's tokens, once all are there. Spans live until the sink returns.
struct PromptScores {
  RequestId request = 0;
  int64_t from = 0;                ///< first token of the prompt that has one
  std::span<const float> logprob;  ///< of the tokens from .. end, with the bits of training
  std::span<const std::vector<TokenProbability>> top;  ///< as many, where asked for
  std::span<const uint16_t>
      routes;  ///< [tokens of the prompt but its last][MoE layers][top_k], where asked for
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  ///< of the prompt, found in the prefix cache
  int64_t output_tokens = 0;  ///< all token events: thinking, forced ones and a stop id included
  int64_t thinking_tokens = 0, forced_tokens = 0;
  int64_t preemptions = 0;  ///< times the sample gave its pages back
};

struct Finished {
  RequestId request = 0;
  int64_t sample = 0;
  FinishReason reason = FinishReason::max_tokens;
  std::string text;   ///< the end of the answer that was held back
  std::string error;  ///< failed: what happened
  std::string hint;
  Usage usage;
  bool last = false;  ///< no event of the request follows
};

/// Where the events of a request go: called by the thread that runs the engine, in this order for each
/// sample: `prompt` (once a request, where asked for), `token` for each, `finished`. Functions may be absent,
/// may call Engine::submit and cancel, and must not throw.
struct Sink {
  std::function<void(const PromptScores&)> prompt = {};
  std::function<void(const TokenEvent&)> token = {};
  std::function<void(const Finished&)> finished = {};
};

}  // namespace ingot
