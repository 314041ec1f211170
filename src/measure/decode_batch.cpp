// See decode_batch.h.
#include "measure/decode_batch.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "infer/engine.h"
#include "measure/read_rate.h"
#include "report/table.h"

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

double prefill_rate(const Model& model, const DecodeBenchOptions& o, int64_t batch) {
  Engine engine(model, {}, engine_options(o, batch));
  for (Request& r : batch_requests(model, o, batch, 1)) engine.submit(std::move(r), {});
  const double begin = monotonic_seconds();
  engine.run_until_idle();
  return static_cast<double>(batch * o.prompt) / (monotonic_seconds() - begin);
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

double attention_rate(const Model& model, const DecodeBenchOptions& o, int64_t batch) {
  TapeProfile profile;
  decode_seconds(model, o, batch, &profile);
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

std::vector<BatchRates> bench_batches(PackedModel& packed, const DecodeBenchOptions& o) {
  const Model& model = packed.model();
  ReadRate read(num_threads());
  std::vector<BatchRates> all;
  for (const int64_t batch : o.batch) {
    BatchRates& rates = all.emplace_back(BatchRates{batch, {}});
    for (int i = 0; i <= o.trials; ++i) {  // the first warms up
      BatchTrial t;
      const double before = read();
      t.prefill = prefill_rate(model, o, batch);
      t.decode = static_cast<double>(batch * o.fresh) / decode_seconds(model, o, batch, nullptr);
      t.attention = attention_rate(model, o, batch);
      t.read = (before + read()) / 2;
      if (i > 0) rates.trials.push_back(t);
    }
  }
  return all;
}

std::string to_text(const std::vector<BatchRates>& rates, const DecodeBenchOptions& o) {
  Table table({number("sequences", 0), number("prompts/s", 0), number("decode/s", 0), number("ratio", 3),
               number("attention GB/s", 1, 1e-9), percent("of reading")});
  for (const BatchRates& r : rates)
    table.add({static_cast<double>(r.batch), r.prefill().median, r.decode().median, r.ratio().median,
               r.attention().median, r.attention_share().median});
  return fmt::format(
             "prompts of {} tokens, then {} sampled tokens each; tokens per second, medians of {} trials\n",
             o.prompt, o.fresh, o.trials) +
         text_of({table});
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
                       {"attention_of_read", r.attention_share().median}});
  const Json all{
      {"format", 1},    {"preset", o.model},        {"weights", name_of(o.weights)}, {"prompt", o.prompt},
      {"new", o.fresh}, {"threads", num_threads()}, {"batches", std::move(batches)}};
  return all.dump(1) + "\n";
}

}  // namespace ingot
