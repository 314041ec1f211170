// How fast a model generates, against what the machine allows: tokens of a prompt per second as a share of the fp32 peak P, new
// tokens per second as a share of the rate at which memory can be read. Random weights in the model's exact shape, opened as
// inference opens them (infer/packed_model.h). What `ingot bench decode` prints.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/spread.h"
#include "infer/packed_model.h"

namespace ingot {

struct DecodeBenchOptions {
  std::string model;  ///< its name, for the report
  WeightForm weights = WeightForm::f32;
  int64_t prompt = 512;  ///< tokens of a prompt, in one forward pass
  int64_t fresh = 64;    ///< tokens to generate after it
  int trials = 5;
  bool ops = true;  ///< time by op too, in one more trial
};

struct DecodeTrial {
  double peak_gflops = 0;  ///< P, mean of before and after
  double read_bytes = 0;   ///< bytes per second, mean of before and after
  double prefill_seconds = 0;
  std::vector<double> token_seconds;  ///< of each new token
};

/// A trial whose ops were timed, which costs a little: it does not count.
struct DecodeOps {
  TapeProfile prefill, decode;
  DecodeTrial trial;
};

struct DecodeBenchReport {
  DecodeBenchOptions options;
  std::string isa;
  int threads = 1;
  int64_t weight_bytes = 0;  ///< of all weights
  int64_t bytes_per_token =
      0;  ///< that a new token reads: weights, and the cache of the middle one of the new tokens
  int64_t resident_bytes =
      0;  ///< most memory that the process had up to the first trial's end, loading included
  double load_seconds = 0;
  double prefill_flops =
      0;  ///< of the prompt: products of every token, the head's of the last one, unmasked pairs of attention
  std::vector<DecodeTrial> trials;
  std::optional<DecodeOps> ops;

  Spread peak_gflops() const;
  Spread read_rate() const;
  Spread prefill_tokens() const;  ///< per second
  Spread prefill_share() const;   ///< of P
  Spread decode_tokens() const;   ///< per second; of a trial's tokens the median
  Spread decode_share() const;    ///< bytes_per_token x tokens per second, of the read rate
};

/// FLOPs of a prompt of `tokens` tokens.
double prefill_flops(const Decoder& decoder, int64_t tokens);

/// Keys and values that a token behind `tokens` others reads.
int64_t cached_bytes(const Model& model, int64_t tokens);

DecodeBenchReport bench_decode(PackedModel& model, const DecodeBenchOptions& options);

/// Rates and shares, and tables of ops where they were timed.
std::string to_text(const DecodeBenchReport& report);
/// {"format": 1, "preset", "weights", "threads", "prompt", "new", "prefill_tokens_per_s", "prefill_of_peak", "decode_tokens_per_s",
/// "bytes_per_token", "read_bytes_per_s", "decode_of_read", "peak_gflops", "resident_bytes", "isa", "weight_bytes", "load_seconds",
/// "spread": {...}}; docs/measuring.md has the fields.
std::string to_json(const DecodeBenchReport& report);

}  // namespace ingot
