// An answer is a function of (weights, prompt, sampling, key, number of the sample), bit for bit: whatever
// else runs, however prompts are divided, with prefixes, as forks, after pre-emptions, on any number of
// threads; and what is recorded of each token is what training's forward computes for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/philox.h"
#include "infer/packed_model.h"
#include "support/engine_answers.h"
#include "support/long_tests.h"
#include "support/other_threads.h"
#include "support/small_models.h"
#include "tape/op.h"
#include "train/step.h"

namespace ingot::test::engine_invariance_test {

constexpr int64_t kRequests = 23;

/// Mixed requests: lengths, sampling, samples, reports, budgets; half of the prompts begin alike.
std::vector<Request> mixed_requests(const ModelConfig& m, int64_t count = kRequests, uint64_t seed = 1) {
  const Random random(seed, RandomPurpose::test);
  uint64_t next = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.below(next++, static_cast<uint64_t>(n)));
  };
  std::vector<int32_t> common(100);
  for (int32_t& id : common) id = static_cast<int32_t>(below(m.vocab));
  std::vector<Request> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) {
    Request& r = all[i];
    if (i % 2 == 0) r.prompt.assign(common.begin(), common.begin() + 20 + below(81));
    const int64_t own = 1 + below(i % 3 == 0 ? 100 : 12);
    for (int64_t k = 0; k < own; ++k) r.prompt.push_back(static_cast<int32_t>(below(m.vocab)));
    r.max_tokens = i % 9 == 4 ? 0 : 1 + below(24);
    r.n = 1 + (i % 4 == 1 ? below(3) : 0);
    r.key = static_cast<uint64_t>(below(1000));
    r.sampling.seed = static_cast<uint64_t>(below(3));
    r.sampling.temperature = std::array{1.0, 0.0, 0.7, 1.3}[i % 4];
    if (i % 5 == 1) r.sampling.top_k = 1 + below(20);
    if (i % 5 == 2) r.sampling.top_p = 0.3 + 0.1 * static_cast<double>(below(7));
    if (i % 5 == 3) r.sampling.min_p = 0.05;
    if (i % 3 == 2 || r.max_tokens == 0) r.report.prompt_from = below(static_cast<int64_t>(r.prompt.size()));
    r.report.top = i % 6 == 2 ? 3 : 0;
    r.report.kept = true;
    r.report.routes = m.moe.experts > 0 && i % 4 == 3;
    if (i % 7 == 3) r.stop_ids = {static_cast<int32_t>(below(m.vocab)), static_cast<int32_t>(below(m.vocab))};
    if (i % 7 == 5)
      r.thinking = {.open = {5}, .close = {6, 7}, .max_tokens = 4, .closing = {9, 6, 7}, .opened = true};
  }
  return all;
}

enum class Form { f32, bf16, int8 };

/// A model as the engine reads it: the trainer's own weights in fp32, packed ones in bf16 and int8.
struct Case {
  Case(const std::string& name, Form form)
      : shared(small_model(name, form == Form::bf16 ? Precision::bf16() : Precision::f32())) {
    if (form != Form::f32) packed.emplace(*shared, form == Form::int8 ? WeightForm::int8 : WeightForm::bf16);
  }
  const Model& model() const { return packed ? packed->model() : *shared; }
  Model& model() { return packed ? packed->model() : *shared; }
  std::unique_ptr<Model> shared;
  std::optional<PackedModel> packed;
};

class EngineInvariance : public ::testing::TestWithParam<std::tuple<std::string, Form>> {
 protected:
  EngineInvariance() : before_(kernel_policy()), it_(std::get<0>(GetParam()), std::get<1>(GetParam())) {
    set_kernel_policy(KernelPolicy::any);
  }
  ~EngineInvariance() override { set_kernel_policy(before_); }
  std::vector<Answer> alone(const std::vector<Request>& requests) const {
    std::vector<Answer> answers;
    for (const Request& r : requests) {
      EngineOptions o;
      o.prefix_cache = false;
      Engine engine(it_.model(), {}, o);
      answers.push_back(answer_of(engine, r));
    }
    return answers;
  }
  KernelPolicy before_;
  Case it_;
};

void expect_equal(const std::vector<Answer>& a, const std::vector<Answer>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] == b[i]) << what << ", request " << i;
}

/// Answers of requests that run together, and how many samples were under way at most.
std::vector<Answer> answers_and_neighbours(Engine& engine, const std::vector<Request>& requests,
                                           int64_t& neighbours) {
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) engine.submit(requests[i], into(answers[i]));
  neighbours = 0;
  while (engine.step()) neighbours = std::max(neighbours, engine.stats().running);
  return answers;
}

TEST_P(EngineInvariance, AnswersAreThoseOfRequestsThatRunAlone) {
  std::vector<Request> requests = mixed_requests(it_.model().config(), long_tests() ? 200 : 75);
  for (Request& r : requests)
    if (r.max_tokens > 0) r.max_tokens += 30;
  const std::vector<Answer> expected = alone(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    EXPECT_EQ(expected[i].last, 1);
    EXPECT_EQ(expected[i].scored, r.report.prompt_from >= 0 || r.report.routes ? 1 : 0);
    EXPECT_EQ(expected[i].samples.size(), static_cast<size_t>(r.max_tokens == 0 ? 1 : r.n));
    if (r.report.prompt_from >= 0) {
      EXPECT_EQ(static_cast<int64_t>(expected[i].prompt.size()) + expected[i].from,
                static_cast<int64_t>(r.prompt.size()));
    }
  }
  for (const int64_t budget : {1, 7, 64, 512}) {
    EngineOptions o;
    o.token_budget = budget, o.prefix_cache = budget != 64, o.max_pages = 2000;
    Engine engine(it_.model(), {}, o);
    int64_t neighbours = 0;
    expect_equal(answers_and_neighbours(engine, requests, neighbours), expected,
                 fmt::format("{} rows a call", budget));
    if (budget == 512) {
      EXPECT_GE(neighbours, 65);
    }
    if (!o.prefix_cache) continue;
    const int64_t before = engine.stats().cached_tokens;
    expect_equal(answers_of(engine, requests), expected, "again, with prefixes");
    EXPECT_GT(engine.stats().cached_tokens, before);
  }
}

TEST_P(EngineInvariance, PreemptedAnswersAreTheSame) {
  std::vector<Request> requests = mixed_requests(it_.model().config());
  for (Request& r : requests) {  // short prompts that begin together and grow at the same time
    r.prompt.resize(std::min<size_t>(r.prompt.size(), 40));
    r.report.prompt_from = std::min<int64_t>(r.report.prompt_from, 10);
    if (r.max_tokens > 0) r.max_tokens += 90, r.stop_ids.clear();
  }
  const std::vector<Answer> expected = alone(requests);
  for (const bool prefixes : {true, false}) {
    EngineOptions o;
    o.max_pages = 7, o.prefix_cache = prefixes;
    Engine engine(it_.model(), {}, o);
    const std::vector<Answer> answers = answers_of(engine, requests);
    expect_equal(answers, expected, "pre-empted");
    int64_t most = 0;
    for (const Answer& a : answers)
      for (const auto& [number, s] : a.samples) most = std::max(most, s.end.usage.preemptions);
    EXPECT_GE(most, 3);
    EXPECT_EQ(engine.stats().pages - engine.stats().cached_pages, 0) << "pages that nobody uses";
  }
}

TEST_P(EngineInvariance, ThreadsDoNotMatter) {
  const std::vector<Request> requests = mixed_requests(it_.model().config());
  EngineOptions o;
  o.token_budget = 40;
  Engine engine(it_.model(), {}, o);
  const std::vector<Answer> expected = answers_of(engine, requests);
  const OtherThreads others;
  Engine other(it_.model(), {}, o);
  expect_equal(answers_of(other, requests), expected, "other threads");
}

/// The distribution that the token after a row was drawn from.
struct DrawnFrom {
  size_t row;
  float scale;  ///< 1 / temperature
  std::span<const int32_t> kept;
};

/// Log-probabilities of the training forward (recorded, packed with others) over documents: by the model
/// itself, and of what was drawn, with the temperature and over the kept ids.
struct Training {
  std::vector<float> logprobs, sampled;

  Training(const Model& model, const std::vector<std::vector<int32_t>>& documents,
           const std::vector<DrawnFrom>& drawn = {}) {
    data::Batch b;
    b.rows = 1;
    for (const auto& d : documents) {
      const auto at = static_cast<int32_t>(b.tokens.size());
      b.spans.push_back({at, at + static_cast<int32_t>(d.size())});
      b.tokens.insert(b.tokens.end(), d.begin(), d.end());
      b.targets.insert(b.targets.end(), d.begin() + 1, d.end());
      b.targets.push_back(-1);
      for (size_t p = 0; p < d.size(); ++p) b.positions.push_back(static_cast<int32_t>(p));
    }
    b.sequence_length = static_cast<int64_t>(b.tokens.size());
    HeapArena arena;
    GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
    Tape tape(arena, {.sink = &gradients});
    MicroBatch mb = micro_batch(b, 0, 1);
    for (SequenceSpan& s : mb.rows.spans) s.phase = 0;
    Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
    model.equip(c);
    const Value hidden_TD = model.decoder().forward(c, tape.leaf(mb.ids)).hidden_TD;
    const HeadResult h = model.decoder().head(c, {}, hidden_TD, tape.leaf(mb.targets));
    const auto* p = h.logprob_T.tensor().as<float>();
    logprobs.assign(p, p + b.sequence_length);
    sampled.resize(b.tokens.size());
    std::set<float> scales;
    for (const DrawnFrom& d : drawn) scales.insert(d.scale);
    for (const float scale : scales) head_of(model, c, hidden_TD, b.targets, drawn, scale);
  }

 private:
  /// The head as training calls it, over the rows that were drawn from with this scale.
  void head_of(const Model& model, Context& c, const Value& hidden_TD, const std::vector<int32_t>& all,
               const std::vector<DrawnFrom>& drawn, float scale) {
    std::vector<int32_t> targets(all.size(), -1), ranges(2 * all.size()), ids;
    for (const DrawnFrom& d : drawn) {
      if (d.scale != scale) continue;
      targets[d.row] = all[d.row];
      ranges[2 * d.row] = static_cast<int32_t>(ids.size());
      ids.insert(ids.end(), d.kept.begin(), d.kept.end());
      ranges[2 * d.row + 1] = static_cast<int32_t>(ids.size());
    }
    const auto rows = static_cast<int64_t>(all.size());
    const HeadAllowed allowed{c.tape.leaf(Tensor::of(ranges.data(), {rows, 2})),
                              c.tape.leaf(Tensor::of(ids.data(), {static_cast<int64_t>(ids.size())}))};
    const HeadResult h = model.decoder().head(
        c, {.scale = scale}, hidden_TD, c.tape.leaf(Tensor::of(targets.data(), {rows})), {}, {}, allowed);
    for (size_t t = 0; t < targets.size(); ++t)
      if (targets[t] >= 0) sampled[t] = h.logprob_T.tensor().as<float>()[t];
  }
};

struct Compared {
  int64_t tokens = 0, unequal = 0;                     ///< by the model itself
  int64_t drawn = 0, filtered = 0, unequal_drawn = 0;  ///< with a temperature; of these over kept ids only
};

/// What was recorded against the training forward of `model`.
Compared compare(const Model& model, const std::vector<Request>& requests,
                 const std::vector<Answer>& answers) {
  std::vector<std::vector<int32_t>> documents;
  std::vector<DrawnFrom> drawn;
  size_t row = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    for (const auto& [number, s] : answers[i].samples) {
      auto& d = documents.emplace_back(requests[i].prompt);
      d.insert(d.end(), s.ids.begin(), s.ids.end());
      const auto scale = static_cast<float>(1 / requests[i].sampling.temperature);
      for (size_t k = 0; k < s.ids.size() && requests[i].sampling.temperature > 0; ++k)
        if (!s.forced[k]) drawn.push_back({row + requests[i].prompt.size() + k - 1, scale, s.kept[k]});
      row += d.size();
    }
  const Training training(model, documents, drawn);
  Compared all;
  row = 0;
  size_t next = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    for (const auto& [number, s] : answers[i].samples) {
      const size_t prompt = requests[i].prompt.size(), scored = answers[i].prompt.size();
      for (size_t p = 0; p < scored; ++p, ++all.tokens)
        all.unequal +=
            answers[i].prompt[p] != training.logprobs[row + static_cast<size_t>(answers[i].from) + p - 1];
      for (size_t k = 0; k < s.ids.size(); ++k, ++all.tokens) {
        const size_t at = row + prompt + k - 1;
        all.unequal += s.logprobs[k] != training.logprobs[at];
        if (next == drawn.size() || drawn[next].row != at) continue;
        ++all.drawn, all.filtered += !drawn[next++].kept.empty();
        all.unequal_drawn += s.sampled[k] != training.sampled[at];
      }
      row += prompt + s.ids.size();
    }
  EXPECT_EQ(next, drawn.size());
  return all;
}

TEST_P(EngineInvariance, WhatIsRecordedIsWhatTrainingComputes) {
  // More than a million with INGOT_LONG_TESTS, over all models.
  const int64_t rounds = long_tests() ? 60 : 1;
  Compared all;
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<Request> requests =
        mixed_requests(it_.model().config(), kRequests, static_cast<uint64_t>(round) + 2);
    if (rounds > 1)
      for (Request& r : requests) r.max_tokens = 100;
    Engine engine(it_.model(), {});
    const Compared c = compare(it_.model(), requests, answers_of(engine, requests));
    all.tokens += c.tokens, all.unequal += c.unequal;
    all.drawn += c.drawn, all.filtered += c.filtered, all.unequal_drawn += c.unequal_drawn;
  }
  EXPECT_GT(all.tokens, 300 * rounds);
  EXPECT_GT(all.filtered, 50 * rounds);
  EXPECT_EQ(all.unequal, 0) << "of " << all.tokens;
  EXPECT_EQ(all.unequal_drawn, 0) << "of " << all.drawn;
  if (rounds > 1)
    fmt::print("{} log-probabilities of the model, {} of what was drawn, {} of these over kept ids\n",
               all.tokens, all.drawn, all.filtered);
}

TEST_P(EngineInvariance, AWeightThatMovedByOneUnitIsSeen) {
  if (std::get<1>(GetParam()) != Form::f32) GTEST_SKIP() << "of the trainer's own weights";
  const std::vector<Request> requests = mixed_requests(it_.model().config());
  Engine engine(it_.model(), {});
  const std::vector<Answer> answers = answers_of(engine, requests);
  EXPECT_EQ(compare(it_.model(), requests, answers).unequal, 0);
  const Tensor w = it_.shared->weights().master(it_.shared->decoder().head_index());
  float& one = w.as<float>()[w.dim(1) * 5 + 3];
  one = std::nextafter(one, 10.0f);
  EXPECT_GT(compare(it_.model(), requests, answers).unequal, 0);
}

TEST_P(EngineInvariance, APrefixDoesNotOutliveTheWeightsThatMadeIt) {
  const Form form = std::get<1>(GetParam());
  std::vector<Request> requests = mixed_requests(it_.model().config());
  Engine engine(it_.model(), {});
  answers_of(engine, requests);
  const auto update = [&](float by) {
    WeightSet& w = it_.shared->weights();
    for (int i = 0; i < w.size(); ++i)
      for (int64_t k = 0; k < w.master(i).numel(); k += 3) w.master(i).as<float>()[k] *= by;
    w.changed();
    if (it_.packed) it_.packed->refresh(*it_.shared);
  };
  update(1.01f);
  const std::vector<Answer> fresh = alone(requests);
  expect_equal(answers_of(engine, requests), fresh, "after an update");
  EXPECT_EQ(compare(it_.model(), requests, fresh).unequal, 0);
  if (form == Form::int8) return;
  // The same without notice: the old prefixes meet the new weights, and the comparison sees it.
  if (form == Form::bf16) return;
  WeightSet& w = it_.shared->weights();
  for (int i = 0; i < w.size(); ++i)
    for (int64_t k = 0; k < w.master(i).numel(); k += 3) w.master(i).as<float>()[k] *= 1.01f;
  EXPECT_GT(compare(it_.model(), requests, answers_of(engine, requests)).unequal, 0);
}

TEST_P(EngineInvariance, LiveSamplesAreRecomputedByNewWeightsOrKept) {
  if (std::get<1>(GetParam()) != Form::f32) GTEST_SKIP() << "of the trainer's own weights";
  Request r;
  r.prompt = {1, 2, 3, 4, 5, 6, 7};
  r.max_tokens = 20;
  for (const OnNewWeights way : {OnNewWeights::recompute, OnNewWeights::keep}) {
    EngineOptions o;
    o.on_new_weights = way;
    Engine engine(it_.model(), {}, o);
    Answer a;
    engine.submit(r, into(a));
    for (int i = 0; i < 8; ++i) engine.step();
    WeightSet& w = it_.shared->weights();
    for (int i = 0; i < w.size(); ++i)
      for (int64_t k = 0; k < w.master(i).numel(); k += 3) w.master(i).as<float>()[k] *= 1.02f;
    w.changed();
    engine.run_until_idle();
    const Sampled& s = a.samples.at(0);
    ASSERT_EQ(s.ids.size(), 20u);
    EXPECT_EQ(s.weights[7] + 1, s.weights[8]);
    EXPECT_EQ(s.weights[8], w.version());
    std::vector<int32_t> document = r.prompt;
    document.insert(document.end(), s.ids.begin(), s.ids.end());
    const Training training(it_.model(), {document});
    int64_t unequal = 0;
    for (size_t k = 8; k < 20; ++k) unequal += s.logprobs[k] != training.logprobs[r.prompt.size() + k - 1];
    if (way == OnNewWeights::recompute)
      EXPECT_EQ(unequal, 0);
    else
      EXPECT_GT(unequal, 0) << "old keys and values under new weights";
  }
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<std::string, Form>>& info) {
  static constexpr const char* kForms[] = {"f32", "bf16", "int8"};
  return std::get<0>(info.param) + "_" + kForms[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Models, EngineInvariance,
                         ::testing::Combine(::testing::Values("llama", "zaya", "mla"),
                                            ::testing::Values(Form::f32, Form::bf16, Form::int8)),
                         name_of_case);

}  // namespace ingot::test::engine_invariance_test
