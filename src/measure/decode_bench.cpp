// See decode_bench.h.
#include "measure/decode_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "infer/engine.h"
#include "measure/read_rate.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> random_ids(int64_t count, int64_t vocabulary, uint64_t stream) {
  const Random random(1, RandomPurpose::sampling, stream);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(
        static_cast<int32_t>(random.bits64(static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocabulary)));
  return ids;
}

/// One prompt and its new tokens; with `ops` the time of each op.
DecodeTrial generate_once(Engine& engine, const DecodeBenchOptions& o, uint64_t stream,
                          DecodeOps* ops = nullptr) {
  DecodeTrial t;
  Request r;
  r.prompt = random_ids(o.prompt, engine.model().config().vocab, stream);
  r.max_tokens = o.fresh + 1;
  r.sampling.temperature = 0;
  engine.submit(r, {});
  engine.set_profile(ops != nullptr ? &ops->prefill : nullptr);
  double begin = monotonic_seconds();
  engine.step();
  t.prefill_seconds = monotonic_seconds() - begin;
  engine.set_profile(ops != nullptr ? &ops->decode : nullptr);
  for (bool more = true; more;) {
    begin = monotonic_seconds();
    more = engine.step();
    if (more) t.token_seconds.push_back(monotonic_seconds() - begin);
  }
  engine.set_profile(nullptr);
  return t;
}

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

}  // namespace

Table forward_table(std::string title, const TapeProfile& profile, double calls, double seconds) {
  Table table({words(std::move(title)), number("calls", 0), number("ms", 4, 1e3), percent("share")});
  double rest = seconds;
  for (const auto& [name, p] : profile) {
    const double time = p.seconds[0] / calls;
    table.add({name, static_cast<double>(p.calls) / calls, time, time / seconds});
    rest -= time;
  }
  table.add({"outside of ops", {}, rest, rest / seconds});
  return table;
}

double prefill_flops(const Decoder& decoder, int64_t tokens) {
  const ModelConfig& m = decoder.config();
  const auto n = static_cast<double>(tokens);
  double pairs = 0;
  for (int64_t l = 0; l < m.layers; ++l)
    if (m.attends(l)) {
      const double window = m.window_of(l) > 0 ? std::min(n, static_cast<double>(m.window_of(l))) : n;
      pairs += window * (window + 1) / 2 + (n - window) * window;
    }
  return 2 * n * static_cast<double>(count_parameters(decoder).active_without_embedding) +
         2 * static_cast<double>(decoder.table()[decoder.head_index()].shape.numel()) +
         2 * pairs * static_cast<double>(m.heads * (m.key_width() + m.value_width()));
}

int64_t cached_bytes(const Model& model, int64_t tokens) {
  const SequenceLayout l = sequence_layout(model);
  const ModelConfig& m = model.config();
  int64_t rows = 0;
  for (int64_t layer = 0; layer < m.layers; ++layer)
    if (m.attends(layer)) rows += m.window_of(layer) > 0 ? std::min(tokens, m.window_of(layer)) : tokens;
  return rows * l.kv_heads * (l.head_width + l.values()) * size_of(l.dtype);
}

Spread DecodeBenchReport::peak_gflops() const {
  return spread_over(trials, &DecodeTrial::peak_gflops);
}
Spread DecodeBenchReport::read_rate() const {
  return spread_over(trials, &DecodeTrial::read_bytes);
}
Spread DecodeBenchReport::prefill_tokens() const {
  return spread_over(
      trials, [&](const DecodeTrial& t) { return static_cast<double>(options.prompt) / t.prefill_seconds; });
}
Spread DecodeBenchReport::prefill_share() const {
  return spread_over(trials, [&](const DecodeTrial& t) {
    return prefill_flops / t.prefill_seconds / (1e9 * t.peak_gflops);
  });
}
Spread DecodeBenchReport::decode_tokens() const {
  return spread_over(trials, [](const DecodeTrial& t) { return 1 / spread_of(t.token_seconds).median; });
}
Spread DecodeBenchReport::decode_share() const {
  return spread_over(trials, [&](const DecodeTrial& t) {
    return static_cast<double>(bytes_per_token) / spread_of(t.token_seconds).median / t.read_bytes;
  });
}

DecodeBenchReport bench_decode(PackedModel& model, const DecodeBenchOptions& o) {
  if (o.trials < 1 || o.prompt < 1 || o.fresh < 1)
    throw Error(fmt::format("{} trials of {} and {} tokens", o.trials, o.prompt, o.fresh),
                "give at least one of each");
  DecodeBenchReport r;
  r.options = o;
  r.isa = isa_name(active_isa());
  r.threads = num_threads();
  r.weight_bytes = model.bytes();
  r.bytes_per_token = model.bytes_per_token() + cached_bytes(model.model(), o.prompt + (o.fresh + 1) / 2);
  r.prefill_flops = prefill_flops(model.model().decoder(), o.prompt);
  EngineOptions options;
  options.token_budget = o.prompt, options.prefix_cache = false;
  Engine engine(model.model(), {}, options);
  generate_once(engine, o, 0);               // warms up memory and threads
  r.resident_bytes = peak_resident_bytes();  // before the buffers that measure memory
  ReadRate read(r.threads);
  for (int i = 1; i <= o.trials; ++i) {
    const double peak = fma_peak_gflops(), rate = read();
    DecodeTrial t = generate_once(engine, o, static_cast<uint64_t>(i));
    t.peak_gflops = (peak + fma_peak_gflops()) / 2, t.read_bytes = (rate + read()) / 2;
    r.trials.push_back(std::move(t));
  }
  if (o.ops) {  // apart: timing costs time
    r.ops.emplace();
    r.ops->trial = generate_once(engine, o, static_cast<uint64_t>(o.trials) + 1, &*r.ops);
  }
  return r;
}

std::string to_text(const DecodeBenchReport& r) {
  const DecodeBenchOptions& o = r.options;
  const Spread prefill = r.prefill_tokens(), prefill_share = r.prefill_share(), decode = r.decode_tokens(),
               share = r.decode_share();
  std::string text = fmt::format(
      "{}, weights {} ({:.2f} GiB), {}, {} kernels; at most {:.2f} GiB resident; medians of {} "
      "trials\n"
      "prompt of {} tokens: {:.1f} tokens/s (spread {}), {:.1f} % of P (spread {}); P = {:.0f} GFLOP/s of "
      "fp32 around it\n"
      "then {} tokens one by one: {:.2f} tokens/s (spread {}), {:.1f} % of B (spread {}): {} "
      "bytes a token, {:.1f} GB/s "
      "around it\n",
      o.model, name_of(o.weights), gib(r.weight_bytes), count_of(r.threads, "thread"), r.isa,
      gib(r.resident_bytes), r.trials.size(), o.prompt, prefill.median, width_of(prefill),
      100 * prefill_share.median, width_of(prefill_share), r.peak_gflops().median, o.fresh, decode.median,
      width_of(decode), 100 * share.median, width_of(share), group_digits(r.bytes_per_token),
      1e-9 * r.read_rate().median);
  if (!r.ops) return text;
  const std::vector<double>& tokens = r.ops->trial.token_seconds;
  const auto count = static_cast<double>(tokens.size());
  return text + text_of({forward_table("prompt", r.ops->prefill, 1, r.ops->trial.prefill_seconds),
                         forward_table("new token", r.ops->decode, count,
                                       std::accumulate(tokens.begin(), tokens.end(), 0.0) / count)});
}

std::string to_json(const DecodeBenchReport& r) {
  const DecodeBenchOptions& o = r.options;
  const Json all{{"format", 1},
                 {"preset", o.model},
                 {"weights", name_of(o.weights)},
                 {"threads", r.threads},
                 {"prompt", o.prompt},
                 {"new", o.fresh},
                 {"prefill_tokens_per_s", r.prefill_tokens().median},
                 {"prefill_of_peak", r.prefill_share().median},
                 {"decode_tokens_per_s", r.decode_tokens().median},
                 {"bytes_per_token", r.bytes_per_token},
                 {"read_bytes_per_s", r.read_rate().median},
                 {"decode_of_read", r.decode_share().median},
                 {"peak_gflops", r.peak_gflops().median},
                 {"resident_bytes", r.resident_bytes},
                 {"isa", r.isa},
                 {"weight_bytes", r.weight_bytes},
                 {"load_seconds", r.load_seconds},
                 {"spread",
                  {{"prefill_tokens_per_s", r.prefill_tokens()},
                   {"prefill_of_peak", r.prefill_share()},
                   {"decode_tokens_per_s", r.decode_tokens()},
                   {"decode_of_read", r.decode_share()}}}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
