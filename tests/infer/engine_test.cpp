// The engine: admission, forks, cancellation, stops, budgets, scoring, refusals. That answers are equal bit
// for bit whatever else runs: engine_invariance_test.cpp.
#include "infer/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "support/engine_answers.h"
#include "support/small_models.h"
#include "tape/op.h"

namespace ingot::test::engine_test {

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : before_(kernel_policy()) { set_kernel_policy(KernelPolicy::any); }
  ~EngineTest() override { set_kernel_policy(before_); }
  KernelPolicy before_;
  std::unique_ptr<Model> model_ = small_model("llama", Precision::f32());
  /// 57 characters: the model's last four ids have no text.
  Tokenizer tokenizer_ =
      Tokenizer::from_characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!?");
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
  const Answer alone = answer_of(engine, mine);
  ASSERT_EQ(alone.samples.at(0).ids.size(), 20u);
  ASSERT_EQ(alone.prompt.size(), 4u);
  std::vector<Answer> others(16);
  for (size_t i = 0; i < others.size(); ++i) {
    Request r = some_request(static_cast<int64_t>(i) + 1);
    r.key = i, r.prompt.resize(i + 1, 7), r.n = 1 + static_cast<int64_t>(i) % 3;
    engine.submit(r, into(others[i]));
  }
  EXPECT_TRUE(answer_of(engine, mine) == alone);
  for (const Answer& o : others) EXPECT_EQ(o.last, 1);
}

TEST_F(EngineTest, SamplesDifferAndEqualThoseAskedForAlone) {
  Engine engine(*model_, {});
  Request r = some_request();
  r.n = 5;
  const Answer all = answer_of(engine, r);
  ASSERT_EQ(all.samples.size(), 5u);
  EXPECT_NE(all.samples.at(0).ids, all.samples.at(1).ids);
  r.n = 1, r.first_sample = 3;
  EXPECT_TRUE(answer_of(engine, r).samples.at(3) == all.samples.at(3));
  r.first_sample = 0, r.key = 1;
  EXPECT_NE(answer_of(engine, r).samples.at(0).ids, all.samples.at(0).ids) << "another key";
}

TEST_F(EngineTest, SamplesOfALongPromptCostOnePrefill) {
  Engine engine(*model_, {});
  Request r = some_request(4);
  r.prompt.assign(200, 9), r.n = 16;
  answer_of(engine, r);
  EXPECT_EQ(engine.stats().computed_rows, 200 + 16 * 3);
  EXPECT_EQ(engine.stats().output_tokens, 64);
}

TEST_F(EngineTest, AKnownPrefixIsNotComputedAgain) {
  Engine engine(*model_, {});
  Request r = some_request(2);
  r.prompt.assign(200, 9);
  answer_of(engine, r);
  r.prompt[150] = 8;
  const int64_t before = engine.stats().computed_rows;
  const Answer a = answer_of(engine, r);
  EXPECT_EQ(a.samples.at(0).end.usage.cached_tokens, 128);
  EXPECT_EQ(engine.stats().computed_rows - before, 200 - 128 + 1);
  engine.drop_cached_prefixes();
  EXPECT_EQ(engine.stats().pages, 0);
  EXPECT_EQ(answer_of(engine, r).samples.at(0).end.usage.cached_tokens, 0);
}

TEST_F(EngineTest, AScoredContinuationUsesThePrefixOfItsContext) {
  Engine engine(*model_, {});
  Request r = some_request(0);
  r.prompt.assign(160, 4);
  r.report.prompt_from = 0;
  const Answer whole = answer_of(engine, r);
  EXPECT_EQ(whole.from, 1);
  EXPECT_EQ(whole.samples.at(0).end.reason, FinishReason::max_tokens);
  r.report.prompt_from = 150;
  const Answer part = answer_of(engine, r);
  EXPECT_EQ(part.samples.at(0).end.usage.cached_tokens, 128);
  EXPECT_EQ(part.from, 150);
  EXPECT_EQ(part.prompt, std::vector<float>(whole.prompt.end() - 10, whole.prompt.end()));
  r.report.top = 5;
  const Answer listed = answer_of(engine, r);
  EXPECT_EQ(listed.prompt, part.prompt);
  ASSERT_EQ(listed.prompt_top.size(), 10u);
  for (const auto& top : listed.prompt_top) ASSERT_EQ(top.size(), 5u);
  r.prompt = {3}, r.report = {.prompt_from = 0};
  EXPECT_TRUE(answer_of(engine, r).prompt.empty()) << "the first token of a text has no log-probability";
}

TEST_F(EngineTest, StopsEndASample) {
  Engine engine(*model_, tokenizer_);
  Request r = some_request(60);
  r.sampling.temperature = 2;
  const Sampled free = answer_of(engine, r).samples.at(0);
  EXPECT_EQ(free.text, tokenizer_.decode(free.ids));
  EXPECT_EQ(free.end.reason, FinishReason::max_tokens);
  r.stop_ids = {free.ids[20]};
  const Sampled by_id = answer_of(engine, r).samples.at(0);
  const auto first = std::find(free.ids.begin(), free.ids.end(), free.ids[20]);
  EXPECT_EQ(by_id.ids, std::vector<int32_t>(free.ids.begin(), first + 1)) << "the stop id is reported";
  EXPECT_EQ(by_id.text, tokenizer_.decode({free.ids.data(), by_id.ids.size() - 1})) << "without text";
  EXPECT_EQ(by_id.end.reason, FinishReason::stop_id);
  r.stop_ids = {}, r.stop_strings = {free.text.substr(30, 3), "not there"};
  const Sampled by_text = answer_of(engine, r).samples.at(0);
  EXPECT_EQ(by_text.text, free.text.substr(0, free.text.find(r.stop_strings[0])));
  EXPECT_EQ(by_text.end.reason, FinishReason::stop_string);
}

TEST_F(EngineTest, OnlyIdsOfTheTokenizerAreDrawn) {
  Engine engine(*model_, tokenizer_);
  Request r = some_request(200);
  r.sampling.temperature = 50;  // nearly uniform
  r.report.top = 61;
  const Sampled s = answer_of(engine, r).samples.at(0);
  for (const int32_t id : s.ids) ASSERT_LT(id, 57);
}

TEST_F(EngineTest, TheContextEndsASample) {
  Engine engine(*model_, {});
  Request r = some_request(1000);
  r.prompt.assign(250, 3);
  const Sampled s = answer_of(engine, r).samples.at(0);
  EXPECT_EQ(s.end.reason, FinishReason::context);
  EXPECT_EQ(s.ids.size(), 7u) << "the last one follows the 256th token";
}

TEST_F(EngineTest, ThinkingEndsWithItsBudget) {
  Engine engine(*model_, {});
  Request r = some_request(100);
  r.thinking = {.open = {50},
                .close = {51},
                .max_tokens = 5,
                .closing = {40, 41, 51},
                .answer_tokens = 7,
                .opened = true};
  const Sampled s = answer_of(engine, r).samples.at(0);
  ASSERT_EQ(s.ids.size(), 5u + 3 + 7);
  EXPECT_EQ(std::vector<int32_t>(s.ids.begin() + 5, s.ids.begin() + 8), (std::vector<int32_t>{40, 41, 51}));
  for (size_t i = 0; i < s.ids.size(); ++i) {
    EXPECT_EQ(s.forced[i], i >= 5 && i < 8) << i;
    EXPECT_EQ(s.thinking[i], i < 8) << i;
    EXPECT_LT(s.logprobs[i], 0) << "forced ids have the model's log-probability";
  }
  EXPECT_EQ(s.end.usage.forced_tokens, 3);
  EXPECT_EQ(s.end.usage.thinking_tokens, 8);
  EXPECT_EQ(s.end.reason, FinishReason::max_tokens);
  // Drawn tokens before and after are those without a budget, as far as they follow the same tokens.
  r.thinking = {};
  const Sampled free = answer_of(engine, r).samples.at(0);
  EXPECT_TRUE(std::equal(s.ids.begin(), s.ids.begin() + 5, free.ids.begin()));
}

TEST_F(EngineTest, CancelledRequestsEndAndGiveTheirPagesBack) {
  EngineOptions o;
  o.prefix_cache = false;
  Engine engine(*model_, {}, o);
  Answer a, b, c;
  Request r = some_request(100);
  r.n = 3;
  const RequestId first = engine.submit(r, into(a));
  engine.submit(some_request(4), into(b));
  for (int i = 0; i < 3; ++i) engine.step();
  const RequestId waiting = engine.submit(r, into(c));
  engine.cancel(first), engine.cancel(waiting), engine.cancel(12345);
  engine.run_until_idle();
  for (const Answer* x : {&a, &c}) {
    EXPECT_EQ(x->last, 1);
    ASSERT_EQ(x->samples.size(), 3u);
    for (const auto& [number, s] : x->samples) EXPECT_EQ(s.end.reason, FinishReason::cancelled);
  }
  EXPECT_EQ(b.samples.at(0).ids.size(), 4u);
  EXPECT_EQ(engine.stats().pages, 0);
}

TEST_F(EngineTest, ASinkMaySubmitAndCancel) {
  Engine engine(*model_, {});
  Answer a, b;
  Sink sink = into(a);
  RequestId id = 0;
  const auto token = sink.token;
  sink.token = [&](const TokenEvent& e) {
    token(e);
    if (e.position == 7) engine.cancel(id), engine.submit(some_request(2), into(b));
  };
  id = engine.submit(some_request(50), sink);
  engine.run_until_idle();
  EXPECT_EQ(a.samples.at(0).end.reason, FinishReason::cancelled);
  EXPECT_EQ(b.samples.at(0).ids.size(), 2u);
}

TEST_F(EngineTest, OtherThreadsSubmit) {
  Engine engine(*model_, {});
  constexpr size_t kThreads = 4, kEach = 8;
  std::vector<Answer> answers(kThreads * kEach);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kEach; ++i) engine.submit(some_request(3), into(answers[t * kEach + i]));
    });
  while (engine.stats().finished < static_cast<int64_t>(answers.size()))
    if (engine.wait_for_work(std::chrono::milliseconds(100))) engine.step();
  for (std::thread& t : threads) t.join();
  for (const Answer& a : answers) EXPECT_TRUE(a == answers[0]);
}

TEST_F(EngineTest, LogitsThatAreNotFiniteFailTheRequest) {
  Engine engine(*model_, {});
  const Tensor embedding = model_->weights().master(model_->decoder().head_index());
  // The row of id 60 is read by prompts that have it, and by the head: infinite logits for all.
  embedding.as<float>()[60 * embedding.dim(1)] = INFINITY;
  Answer a;
  engine.submit(some_request(3), into(a));
  engine.run_until_idle();
  EXPECT_EQ(a.samples.at(0).end.reason, FinishReason::failed);
  EXPECT_NE(a.samples.at(0).end.error.find("not finite"), std::string::npos) << a.samples.at(0).end.error;
  EXPECT_EQ(engine.stats().running + engine.stats().waiting, 0);
}

TEST_F(EngineTest, WhatIsWrongWithARequestIsSaid) {
  EngineOptions o;
  o.max_pages = 3;
  Engine engine(*model_, {}, o);
  const auto refusal = [&](auto change) -> std::string {
    Request r = some_request();
    change(r);
    try {
      engine.submit(r, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto says = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal([](Request& r) { r.prompt.clear(); }), "empty");
  says(refusal([](Request& r) { r.prompt[2] = 61; }), "token 2 of the prompt is 61");
  says(refusal([](Request& r) { r.prompt[0] = -1; }), "-1");
  says(refusal([](Request& r) { r.prompt.resize(257, 1); }), "context is 256");
  says(refusal([](Request& r) { r.prompt.resize(190, 1), r.max_tokens = 10; }),
       "sequence cache, which has 3");
  says(refusal([](Request& r) { r.n = 0; }), "0 samples");
  says(refusal([](Request& r) { r.max_tokens = -1; }), "-1 new tokens");
  says(refusal([](Request& r) { r.sampling.temperature = std::nan(""); }), "temperature");
  says(refusal([](Request& r) { r.stop_strings = {"a"}; }), "tokenizer");
  says(refusal([](Request& r) { r.report.prompt_from = 6; }), "from token 6 of 5");
  says(refusal([](Request& r) { r.report.routes = true; }), "no experts");
  says(refusal([](Request& r) { r.thinking.max_tokens = 3; }), "ids that end the thinking");
  says(refusal([](Request& r) { r.thinking = {.open = {1}, .close = {2}, .closing = {3}}; }), "do not end");
  EXPECT_FALSE(engine.step());
}

TEST_F(EngineTest, RoutesAreThoseOfTheWholeSequence) {
  const auto moe = small_model("moe", Precision::f32());
  Engine engine(*moe, {});
  Request r = some_request(10);
  r.report.routes = true;
  const Answer a = answer_of(engine, r);
  const auto per_row = moe->decoder().moe_layers().size() * static_cast<size_t>(moe->config().moe.top_k);
  EXPECT_EQ(a.prompt_routes.size(), 4 * per_row);
  // The same tokens as a prompt have the same routes.
  std::vector<uint16_t> expected = a.prompt_routes;
  for (const auto& routes : a.samples.at(0).routes)
    expected.insert(expected.end(), routes.begin(), routes.end());
  const Sampled& s = a.samples.at(0);
  r.prompt.insert(r.prompt.end(), s.ids.begin(), s.ids.end());
  const Answer whole = answer_of(engine, r);
  EXPECT_EQ(whole.prompt_routes, expected);
}

}  // namespace ingot::test::engine_test
