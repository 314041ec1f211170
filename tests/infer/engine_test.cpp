// The engine: admission, forks, cancellation, stops, budgets, scoring, and that a sample does not depend on
// what else runs.
#include "infer/engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/parallel.h"
#include "support/data_support.h"
#include "support/small_models.h"
#include "tape/op.h"

namespace ingot::test::engine_test {

struct Sampled {
  std::vector<int32_t> ids;
  std::vector<float> logprobs, sampled;
  std::vector<std::vector<int32_t>> kept;
  std::vector<bool> forced, thinking;
  std::string text;
  Finished end;
  bool operator==(const Sampled& o) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return ids == o.ids && same(logprobs, o.logprobs) && same(sampled, o.sampled) && kept == o.kept &&
           text == o.text && end.reason == o.end.reason;
  }
};

/// What a request reported.
struct Answer {
  std::map<int64_t, Sampled> samples;
  std::vector<float> prompt;
  int64_t last = 0;
};

Sink into(Answer& a) {
  return {.prompt = [&a](const PromptScores& p) { a.prompt.assign(p.logprob.begin(), p.logprob.end()); },
          .token =
              [&a](const TokenEvent& e) {
                Sampled& s = a.samples[e.sample];
                s.ids.push_back(e.id), s.logprobs.push_back(e.logprob),
                    s.sampled.push_back(e.sampled_logprob);
                s.kept.emplace_back(e.kept.begin(), e.kept.end());
                s.forced.push_back(e.forced), s.thinking.push_back(e.thinking);
                s.text += e.text;
              },
          .finished =
              [&a](const Finished& f) {
                a.samples[f.sample].text += f.text;
                a.samples[f.sample].end = f;
                a.last += f.last ? 1 : 0;
              }};
}

Answer run(Engine& engine, const Request& r) {
  Answer a;
  engine.submit(r, into(a));
  engine.run_until_idle();
  EXPECT_EQ(a.last, 1);
  return a;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : before_(kernel_policy()) { set_kernel_policy(KernelPolicy::any); }
  ~EngineTest() override { set_kernel_policy(before_); }
  KernelPolicy before_;
  std::unique_ptr<Model> model_ = small_model("llama", Precision::f32());
};

Request some_request(int64_t tokens = 12) {
  Request r;
  r.prompt = {1, 2, 3, 4, 5};
  r.max_tokens = tokens;
  r.sampling.seed = 3;
  return r;
}

TEST_F(EngineTest, AnAnswerDoesNotDependOnItsNeighbours) {
  Engine engine(*model_, {});
  Request mine = some_request(20);
  mine.report.prompt_from = 0;
  const Answer alone = run(engine, mine);
  ASSERT_EQ(alone.samples.at(0).ids.size(), 20u);
  ASSERT_EQ(alone.prompt.size(), 4u);
  std::vector<Answer> others(16);
  for (size_t i = 0; i < others.size(); ++i) {
    Request r = some_request(static_cast<int64_t>(i) + 1);
    r.key = i, r.prompt.resize(i + 1, 7), r.n = 1 + static_cast<int64_t>(i) % 3;
    engine.submit(r, into(others[i]));
  }
  const Answer among = run(engine, mine);
  EXPECT_EQ(among.samples.at(0), alone.samples.at(0));
  EXPECT_EQ(among.prompt, alone.prompt);
  for (const Answer& o : others) EXPECT_EQ(o.last, 1);
}

TEST_F(EngineTest, SamplesOfARequestDifferAndEqualThoseAskedForAlone) {
  Engine engine(*model_, {});
  Request r = some_request();
  r.n = 5;
  const Answer all = run(engine, r);
  ASSERT_EQ(all.samples.size(), 5u);
  EXPECT_NE(all.samples.at(0).ids, all.samples.at(1).ids);
  r.n = 1, r.first_sample = 3;
  EXPECT_EQ(run(engine, r).samples.at(3), all.samples.at(3));
}

}  // namespace ingot::test::engine_test
