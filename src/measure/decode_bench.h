// `ingot bench decode`: tokens per second of prefill as a share of the fp32 peak P, and of decoding as a
// share of the memory bandwidth. The weights are random, in the form that inference uses
// (infer/packed_model.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/spread.h"
#include "infer/packed_model.h"
#include "report/table.h"

namespace ingot {

struct DecodeBenchOptions {
  std::string model;  ///< name for the report
  WeightForm weights = WeightForm::f32;
  int64_t prompt = 512;  ///< tokens of the prompt, in one forward pass
  int64_t fresh = 64;    ///< tokens to generate after it
  int trials = 5;
  bool ops = true;             ///< also time each op, in one more trial
  std::vector<int64_t> batch;  ///< sequences at a time (decode_batch.h); empty: one
};

struct DecodeTrial {
  double peak_gflops = 0;  ///< P, mean of before and after
  double read_bytes = 0;   ///< bytes per second, mean of before and after
  double prefill_seconds = 0;
  std::vector<double> token_seconds;  ///< one per new token
};

/// A trial with timed ops; not part of the rates because timing costs time.
struct DecodeOps {
  TapeProfile prefill, decode;
  DecodeTrial trial;
};

struct DecodeBenchReport {
  DecodeBenchOptions options;
  std::string isa;
  int threads = 1;
  int64_t weight_bytes = 0;     ///< all weights
  int64_t bytes_per_token = 0;  ///< read per new token: weights, and the KV cache at the middle new token
  int64_t resident_bytes = 0;   ///< peak memory of the process up to the first trial's end, loading included
  double load_seconds = 0;
  /// FLOPs of the prompt: products of every token, the head of the last token, unmasked pairs of attention.
  double prefill_flops = 0;
  std::vector<DecodeTrial> trials;
  std::optional<DecodeOps> ops;

  Spread peak_gflops() const;
  Spread read_rate() const;
  Spread prefill_tokens() const;  ///< per second
  Spread prefill_share() const;   ///< of P
  Spread decode_tokens() const;   ///< per second; the median token of each trial
  Spread decode_share() const;    ///< bytes_per_token x tokens per second / bandwidth
};

/// Time of each op in one forward pass of `seconds`, the mean of `calls` passes, and what is left beside
/// them.
Table forward_table(std::string title, const TapeProfile& profile, double calls, double seconds);

/// FLOPs of a prompt of `tokens` tokens.
double prefill_flops(const Decoder& decoder, int64_t tokens);

/// Bytes of keys and values that a token after `tokens` others reads.
int64_t cached_bytes(const Model& model, int64_t tokens);

DecodeBenchReport bench_decode(PackedModel& model, const DecodeBenchOptions& options);

/// Rates and shares, and tables of ops if they were timed.
std::string to_text(const DecodeBenchReport& report);
/// docs/measuring.md lists the fields.
std::string to_json(const DecodeBenchReport& report);

}  // namespace ingot
