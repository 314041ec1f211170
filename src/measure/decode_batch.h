// `ingot bench decode --batch`: many sequences through the engine at once. How fast their prompts are
// computed, how fast they decode together with sampling, at what rate attention reads keys and values, and
// what as many samples of one prompt cost beside one.
#pragma once
#include <vector>

#include "measure/decode_bench.h"

namespace ingot {

struct BatchTrial {
  double prefill = 0;    ///< tokens of prompts per second, in calls of EngineOptions' default size
  double decode = 0;     ///< new tokens per second, sampled at temperature 1
  double attention = 0;  ///< bytes of keys and values per second of attention
  double read = 0;       ///< bytes per second that this machine reads, around the trial
  double samples = 0;    ///< time to the first tokens of that many samples of one prompt, over that of one
};

struct BatchRates {
  int64_t batch = 0;
  std::vector<BatchTrial> trials;
  /// Of the last trial's profiled decoding: its ops, its passes, and what they took, which timing makes more.
  TapeProfile ops;
  int64_t passes = 0;
  double seconds = 0;
  int64_t resident_bytes = 0;  ///< peak memory of the process up to here, with what measures the read rate

  Spread prefill() const;
  Spread decode() const;
  Spread ratio() const;            ///< decode / prefill
  Spread attention() const;        ///< bytes per second
  Spread attention_share() const;  ///< of the read rate
  Spread samples() const;          ///< in prefills
};

/// For each batch size: prompts of options.prompt tokens, then options.fresh tokens each.
std::vector<BatchRates> bench_batches(PackedModel& model, const DecodeBenchOptions& options);

/// A table, with options.ops the ops of a pass that decodes; and an object with the medians.
std::string to_text(const std::vector<BatchRates>& rates, const DecodeBenchOptions& options);

std::string to_json(const std::vector<BatchRates>& rates, const DecodeBenchOptions& options);

}  // namespace ingot
