// See decode_batch.h.
#include "measure/decode_batch.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "infer/engine.h"
#include "measure/read_rate.h"

namespace ingot {
namespace {

std::vector<Request> batch_requests(const Model& model, const DecodeBenchOptions& o, int64_t batch,
                                    int64_t max_tokens) {
  std::vector<Request> all(static_cast<size_t>(batch));
  for (size_t i = 0; i < all.size(); ++i) {
    const Random random(i + 1, RandomPurpose::sampling, 1);
    for (int64_t t = 0; t < o.prompt; ++t)
      all[i].prompt.push_back(static_cast<int32_t>(
          random.below(static_cast<uint64_t>(t), static_cast<uint64_t>(model.config().vocab))));
    all[i].max_tokens = max_tokens, all[i].key = i;
  }
  return all;
}

EngineOptions engine_options(const DecodeBenchOptions& o, int64_t batch) {
  EngineOptions e;
  e.prefix_cache = false;
  e.max_pages = batch * SequenceStore::pages_for(o.prompt + o.fresh + 1);
  return e;
}

/// Of an engine whose pages have been written before, as those of decoding have.
double prefill_rate(const Model& model, const DecodeBenchOptions& o, int64_t batch) {
  Engine engine(model, {}, engine_options(o, batch));
  double seconds = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (Request& r : batch_requests(model, o, batch, 1)) engine.submit(std::move(r), {});
    const double begin = monotonic_seconds();
    engine.run_until_idle();
    seconds = monotonic_seconds() - begin;
  }
  return static_cast<double>(batch * o.prompt) / seconds;
}

/// Seconds to the first token of each of `n` samples of one prompt.
double first_tokens_seconds(const Model& model, const DecodeBenchOptions& o, int64_t n) {
  EngineOptions e = engine_options(o, n);
  e.token_budget = o.prompt;
  Engine engine(model, {}, e);
  Request r = batch_requests(model, o, 1, 1).front();
  r.n = n;
  engine.submit(std::move(r), {});
  const double begin = monotonic_seconds();
  engine.run_until_idle();
  return monotonic_seconds() - begin;
}

/// Decodes; with a profile, which costs time, what attention takes in it.
double decode_seconds(const Model& model, const DecodeBenchOptions& o, int64_t batch, TapeProfile* profile) {
  EngineOptions e = engine_options(o, batch);
  e.token_budget = batch * o.prompt;
  Engine engine(model, {}, e);
  for (Request& r : batch_requests(model, o, batch, o.fresh + 1)) engine.submit(std::move(r), {});
  engine.step();
  engine.set_profile(profile);
  const double begin = monotonic_seconds();
  engine.run_until_idle();
  return monotonic_seconds() - begin;
}

/// Keeps the profile of one more decoding, and says at what rate its attention read.
double attention_rate(const Model& model, const DecodeBenchOptions& o, BatchRates& rates) {
  const int64_t batch = rates.batch;
  TapeProfile& profile = rates.ops = {};
  rates.seconds = decode_seconds(model, o, batch, &profile);
  rates.passes = o.fresh;
  double bytes = 0;
  for (int64_t t = 1; t <= o.fresh; ++t)
    bytes += static_cast<double>(batch * cached_bytes(model, o.prompt + t));
  double seconds = 0;
  for (const char* op : {"attention", "mla_cached"})
    if (const auto found = profile.find(op); found != profile.end()) seconds += found->second.seconds[0];
  return seconds > 0 ? bytes / seconds : 0;
}

}  // namespace

Spread BatchRates::prefill() const {
  return spread_over(trials, &BatchTrial::prefill);
}
Spread BatchRates::decode() const {
  return spread_over(trials, &BatchTrial::decode);
}
Spread BatchRates::ratio() const {
  return spread_over(trials, [](const BatchTrial& t) { return t.decode / t.prefill; });
}
Spread BatchRates::attention() const {
  return spread_over(trials, &BatchTrial::attention);
}
Spread BatchRates::attention_share() const {
  return spread_over(trials, [](const BatchTrial& t) { return t.attention / t.read; });
}

Spread BatchRates::samples() const {
  return spread_over(trials, &BatchTrial::samples);
}

std::vector<BatchRates> bench_batches(PackedModel& packed, const DecodeBenchOptions& o) {
  const Model& model = packed.model();
  ReadRate read(num_threads());
  std::vector<BatchRates> all;
  for (const int64_t batch : o.batch) {
    BatchRates& rates = all.emplace_back(BatchRates{.batch = batch});
    for (int i = 0; i <= o.trials; ++i) {  // the first warms up
      BatchTrial t;
      const double before = read();
      t.prefill = prefill_rate(model, o, batch);
      t.decode = static_cast<double>(batch * o.fresh) / decode_seconds(model, o, batch, nullptr);
      t.attention = attention_rate(model, o, rates);
      const double one = first_tokens_seconds(model, o, 1);
      t.samples = first_tokens_seconds(model, o, batch) / one;
      t.read = (before + read()) / 2;
      if (i > 0) rates.trials.push_back(t);
    }
    rates.resident_bytes = peak_resident_bytes();
  }
  return all;
}

std::string to_text(const std::vector<BatchRates>& rates, const DecodeBenchOptions& o) {
  Table table({number("sequences", 0), number("prompts/s", 0), number("decode/s", 0), number("ratio", 3),
               number("attention GB/s", 1, 1e-9), percent("of reading"), number("samples", 2)});
  for (const BatchRates& r : rates)
    table.add({static_cast<double>(r.batch), r.prefill().median, r.decode().median, r.ratio().median,
               r.attention().median, r.attention_share().median, r.samples().median});
  std::vector<Table> tables{std::move(table)};
  for (const BatchRates& r : rates)
    if (o.ops)
      tables.push_back(forward_table(fmt::format("a pass of {}", count_of(r.batch, "sequence")), r.ops,
                                     static_cast<double>(r.passes),
                                     r.seconds / static_cast<double>(r.passes)));
  return fmt::format(
             "prompts of {} tokens, then {} sampled tokens each; tokens per second, medians of {} trials\n",
             o.prompt, o.fresh, o.trials) +
         text_of(tables);
}

std::string to_json(const std::vector<BatchRates>& rates, const DecodeBenchOptions& o) {
  using Json = nlohmann::ordered_json;
  Json batches = Json::array();
  for (const BatchRates& r : rates)
    batches.push_back({{"sequences", r.batch},
                       {"prefill_tokens_per_s", r.prefill().median},
                       {"decode_tokens_per_s", r.decode().median},
                       {"decode_of_prefill", r.ratio().median},
                       {"attention_bytes_per_s", r.attention().median},
                       {"attention_of_read", r.attention_share().median},
                       {"samples_of_prefill", r.samples().median},
                       {"resident_bytes", r.resident_bytes}});
  const Json all{
      {"format", 1},    {"preset", o.model},        {"weights", name_of(o.weights)}, {"prompt", o.prompt},
      {"new", o.fresh}, {"threads", num_threads()}, {"batches", std::move(batches)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
