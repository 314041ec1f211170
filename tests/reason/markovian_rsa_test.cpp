// Markovian RSA is what its definition says: written plainly, one rollout after another, the special cases
// and the general one give the same bits; prompts and decoded tokens are bounded and counted exactly.
#include "reason/markovian_rsa.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "environments/environment.h"
#include "reason/training_rows.h"
#include "support/small_models.h"

namespace ingot::reason::markovian_rsa_test {

constexpr const char* kOpenThinking =
    R"({%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{- '<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- m.content + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>' }}{% endif %})";

/// A small model that writes characters, and a chat format that begins with thinking.
struct Fixture {
  std::unique_ptr<Model> model = test::small_model("llama", Precision::f32());
  Tokenizer tokenizer = Tokenizer::from_characters(
      "0123456789abcdefghijklmnopqrstuvwxyz \n[].,:?+-=^RSG",
      std::vector<std::string>{"<|im_start|>", "<|im_end|>", "<think>", "</think>"});
  chat::ChatTemplate chat = chat::ChatTemplate::from_text(kOpenThinking);
  Engine engine{*model, tokenizer};
  Reasoner reasoner{&engine, &chat, {*tokenizer.special_id("<|im_end|>")}, {}};

  RsaOptions options(int64_t n, int64_t c, int64_t t, int64_t budget, int64_t tail) const {
    RsaOptions o;
    o.population = n, o.candidates = c, o.rounds = t, o.budget = budget, o.tail = tail, o.answer_tokens = 5;
    o.sampling.seed = 11;
    return o;
  }
  static ReasonProblem problem(const std::string& text) {
    return {{{chat::text_message("user", text)}, "", ""}, hash64(text)};
  }
};

/// One rollout by the engine's own means.
Ids plain_rollout(Fixture& f, const Ids& prompt, uint64_t key, int64_t sample, const RsaOptions& o,
                  int64_t& decoded, bool& finished) {
  Request request;
  request.prompt = prompt;
  request.sampling = o.sampling;
  request.key = key;
  request.first_sample = sample;
  request.stop_ids = f.reasoner.stop_ids;
  request.thinking = thinking_budget(f.chat.reply_format(), f.tokenizer, o.budget, true);
  request.thinking.answer_tokens = o.answer_tokens;
  request.max_tokens = 1000;
  Ids ids;
  f.engine.submit(request,
                  {.token =
                       [&](const TokenEvent& e) {
                         ++decoded;
                         if (!e.stop) ids.push_back(e.id);
                       },
                   .finished = [&](const Finished& end) { finished = end.reason == FinishReason::stop_id; }});
  f.engine.run_until_idle();
  return ids;
}

/// What stands before </think>; the answer behind it where that is nothing.
Ids plain_reasoning(const Fixture& f, const Ids& ids) {
  const auto close = std::find(ids.begin(), ids.end(), *f.tokenizer.special_id("</think>"));
  if (close == ids.begin() && close != ids.end()) return {close + 1, ids.end()};
  return {ids.begin(), close};
}

/// The whole method, one rollout after another, for tails of reasoning.
std::vector<std::vector<Ids>> plain_rsa(Fixture& f, const ReasonProblem& problem, const RsaOptions& o,
                                        int64_t& decoded) {
  std::vector<std::vector<Ids>> rounds;
  const Ids first = f.chat.prompt_ids(problem.prompt, f.tokenizer, {.add_generation_prompt = true});
  for (int64_t t = 0; t <= o.rounds; ++t) {
    std::vector<Ids> round;
    for (int64_t j = 0; j < o.population; ++j) {
      Ids prompt = first;
      if (t > 0) {
        std::vector<std::string> texts;  // a character is a token: texts and ids are the same
        std::vector<int64_t> drawn = drawn_candidates(o.sampling.seed, problem.key, t, j, o);
        if (o.candidates == 1) drawn = {j};
        for (const int64_t i : drawn) {
          Ids reasoning = plain_reasoning(f, rounds.back()[static_cast<size_t>(i)]);
          if (static_cast<int64_t>(reasoning.size()) > o.tail)
            reasoning.erase(reasoning.begin(), reasoning.end() - o.tail);
          const auto control = std::find_if(reasoning.rbegin(), reasoning.rend(),
                                            [&](int32_t id) { return f.tokenizer.is_special(id); });
          reasoning.erase(reasoning.begin(), control.base());
          texts.push_back(f.tokenizer.decode_bytes(reasoning));
        }
        prompt = f.chat.prompt_ids(f.reasoner.aggregate.conversation(problem.prompt, texts), f.tokenizer,
                                   {.add_generation_prompt = true});
      }
      bool finished = false;
      round.push_back(plain_rollout(f, prompt,
                                    t == 0 ? problem.key : hash64(fmt::format("{}/{}", problem.key, t)), j, o,
                                    decoded, finished));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

void expect_plain(const RsaOptions& o) {
  Fixture f;
  const ReasonProblem problem = Fixture::problem("chain 7+5-3");
  int64_t decoded = 0;
  const auto plain = plain_rsa(f, problem, o, decoded);
  const RsaResult result = markovian_rsa(f.reasoner, {&problem, 1}, o).front();
  ASSERT_EQ(result.rounds.size(), plain.size());
  for (size_t t = 0; t < plain.size(); ++t)
    for (size_t j = 0; j < plain[t].size(); ++j)
      EXPECT_EQ(result.rounds[t].rollouts[j].ids, plain[t][j]) << t << " " << j;
  EXPECT_EQ(result.decoded(), decoded);
}

TEST(MarkovianRsa, NoRoundsAreParallelSamples) {
  Fixture f;
  const ReasonProblem problem = Fixture::problem("sort 3 1 2");
  const RsaOptions o = f.options(6, 3, 0, 12, 6);
  const RsaResult result = markovian_rsa(f.reasoner, {&problem, 1}, o).front();
  // One request of six samples, as anybody would ask for them.
  Request request;
  request.prompt = f.chat.prompt_ids(problem.prompt, f.tokenizer, {.add_generation_prompt = true});
  request.sampling = o.sampling, request.key = problem.key, request.n = 6, request.max_tokens = 100;
  request.stop_ids = f.reasoner.stop_ids;
  request.thinking = thinking_budget(f.chat.reply_format(), f.tokenizer, 12, true);
  request.thinking.answer_tokens = 5;
  std::vector<Ids> samples(6);
  f.engine.submit(request, {.token = [&](const TokenEvent& e) {
                    if (!e.stop) samples[static_cast<size_t>(e.sample)].push_back(e.id);
                  }});
  f.engine.run_until_idle();
  ASSERT_EQ(result.rounds.size(), 1u);
  for (size_t j = 0; j < 6; ++j) EXPECT_EQ(result.last()[j].ids, samples[j]);
  expect_plain(o);
}

TEST(MarkovianRsa, OneCandidateIsMarkovianThinking) {
  expect_plain(Fixture().options(4, 1, 3, 10, 4));
}

TEST(MarkovianRsa, WholeChainsAreRecursiveSelfAggregation) {
  expect_plain(Fixture().options(4, 2, 2, 8, 8));
}

TEST(MarkovianRsa, TheGeneralCaseIsAsWrittenPlainly) {
  expect_plain(Fixture().options(5, 3, 2, 10, 4));
}

TEST(MarkovianRsa, ProblemsTogetherAreProblemsAlone) {
  Fixture f;
  const RsaOptions o = f.options(4, 2, 2, 8, 4);
  const std::vector<ReasonProblem> problems = {Fixture::problem("chain 1+1"), Fixture::problem("sort 2 1"),
                                               Fixture::problem("reverse a b c")};
  const auto together = markovian_rsa(f.reasoner, problems, o);
  for (size_t p = 0; p < problems.size(); ++p) {
    Fixture other;
    const RsaResult alone = markovian_rsa(other.reasoner, {&problems[p], 1}, o).front();
    for (size_t t = 0; t < alone.rounds.size(); ++t)
      for (size_t j = 0; j < 4; ++j)
        EXPECT_EQ(together[p].rounds[t].rollouts[j].ids, alone.rounds[t].rollouts[j].ids);
  }
}

TEST(MarkovianRsa, PromptsAndTokensAreBoundedAndCounted) {
  Fixture f;
  const ReasonProblem problem = Fixture::problem("power 3^4 mod 7");
  for (const int64_t tail : {1, 4, 9}) {
    const RsaOptions o = f.options(5, 3, 3, 9, tail);
    const RsaResult result = markovian_rsa(f.reasoner, {&problem, 1}, o).front();
    const std::vector<Ids> nothing(3);
    const auto empty = static_cast<int64_t>(
        aggregate_prompt(f.reasoner.aggregate, f.chat, f.tokenizer, problem.prompt, nothing, {}).ids.size());
    int64_t total = 0;
    for (size_t t = 0; t < result.rounds.size(); ++t) {
      const RsaRound& round = result.rounds[t];
      int64_t prompt = 0, decoded = 0;
      for (size_t j = 0; j < round.rollouts.size(); ++j) {
        const Rollout& r = round.rollouts[j];
        const auto generated = static_cast<int64_t>(r.ids.size()) + (r.finished ? 1 : 0);
        EXPECT_EQ(r.decoded, generated);
        EXPECT_LE(static_cast<int64_t>(r.reasoning.size()), o.budget);
        EXPECT_LE(r.decoded, o.budget + 1 + o.answer_tokens);
        decoded += generated;
        if (t == 0) continue;
        ASSERT_EQ(round.drawn[j].size(), 3u);
        prompt += empty;
        for (const int64_t i : round.drawn[j]) {
          const Rollout& before = result.rounds[t - 1].rollouts[static_cast<size_t>(i)];
          const Ids seen = compacted(before, o, f.tokenizer);
          EXPECT_LE(static_cast<int64_t>(seen.size()), tail);
          const Ids& whole = before.reasoning.empty() ? before.answer : before.reasoning;
          EXPECT_TRUE(std::equal(seen.rbegin(), seen.rend(), whole.rbegin())) << "no suffix of the reasoning";
          prompt += static_cast<int64_t>(seen.size());
        }
      }
      EXPECT_EQ(round.decoded, decoded);
      total += decoded;
      if (t == 0) continue;
      EXPECT_EQ(round.prompt_tokens, prompt);
      EXPECT_LE(round.longest_prompt, empty + 3 * tail);
    }
    EXPECT_EQ(result.decoded(), total);
    EXPECT_EQ(result.prompt_bound, empty + 3 * tail);
  }
  const RsaResult samples = markovian_rsa(f.reasoner, {&problem, 1}, f.options(5, 3, 0, 9, 4)).front();
  EXPECT_EQ(samples.prompt_bound, 0) << "no prompt shows candidates";
}

TEST(MarkovianRsa, CompactionSaysWhatIsSeen) {
  Fixture f;
  RsaOptions o = f.options(2, 2, 1, 8, 3);
  const Ids reasoning = f.tokenizer.encode("abcdef"), answer = f.tokenizer.encode("12345");
  Rollout done{.reasoning = reasoning, .answer = answer, .finished = true},
      cut{.reasoning = reasoning, .answer = answer};
  const auto seen = [&](const Rollout& r, Compaction c) {
    o.compaction = c;
    return f.tokenizer.decode_bytes(compacted(r, o, f.tokenizer));
  };
  EXPECT_EQ(seen(done, Compaction::tail), "def");
  EXPECT_EQ(seen(done, Compaction::pacore), "345");
  EXPECT_EQ(seen(done, Compaction::hybrid), "345");
  EXPECT_EQ(seen(cut, Compaction::tail), "def");
  EXPECT_EQ(seen(cut, Compaction::pacore), "");
  EXPECT_EQ(seen(cut, Compaction::hybrid), "def");
  EXPECT_EQ(seen(Rollout{.answer = answer}, Compaction::tail), "345");
  Ids broken = f.tokenizer.encode("ab");
  broken.push_back(*f.tokenizer.special_id("<|im_end|>"));
  for (const int32_t id : f.tokenizer.encode("cd")) broken.push_back(id);
  EXPECT_EQ(f.tokenizer.decode_bytes(tail_of(broken, 10, f.tokenizer)), "cd")
      << "a control token would end the message";
  // Each runs to the end, and hybrid and pacore show what tail does not.
  std::set<std::vector<Ids>> populations;
  for (const Compaction c : {Compaction::tail, Compaction::pacore, Compaction::hybrid}) {
    o.compaction = c;
    const ReasonProblem problem = Fixture::problem("count a in b a");
    std::vector<Ids> last;
    const RsaResult result = markovian_rsa(f.reasoner, {&problem, 1}, o).front();
    for (const Rollout& r : result.last()) last.push_back(r.ids);
    populations.insert(last);
  }
  EXPECT_GE(populations.size(), 2u);
}

TEST(MarkovianRsa, CandidatesAreDifferentOnesDrawnByKey) {
  RsaOptions o;
  o.population = 6, o.candidates = 4;
  std::set<std::vector<int64_t>> all;
  std::vector<int> counts(6);
  for (int64_t j = 0; j < 200; ++j) {
    const std::vector<int64_t> drawn = drawn_candidates(1, 2, 3, j, o);
    EXPECT_EQ(drawn, drawn_candidates(1, 2, 3, j, o));
    EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 4u);
    for (const int64_t i : drawn) ++counts.at(static_cast<size_t>(i));
    all.insert(drawn);
  }
  for (const int count : counts) EXPECT_NEAR(count, 200 * 4 / 6.0, 40);
  EXPECT_GT(all.size(), 100u);
  EXPECT_NE(drawn_candidates(1, 2, 3, 0, o), drawn_candidates(1, 2, 4, 0, o));
  o.candidates = 1;
  EXPECT_EQ(drawn_candidates(1, 2, 3, 5, o), std::vector<int64_t>{5});
}

TEST(MarkovianRsa, WhatDoesNotFitIsRefusedAndLeavesNothingBehind) {
  Fixture f;
  const auto message = [&](const RsaOptions& o, const std::string& text) {
    try {
      const std::vector<ReasonProblem> problems = {Fixture::problem("sort 1 2"), Fixture::problem(text)};
      markovian_rsa(f.reasoner, problems, o);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(f.options(2, 2, 1, 8, 4), std::string(240, 'a'))
                .find("does not fit the model's context of 256"),
            std::string::npos);
  EXPECT_EQ(f.engine.stats().waiting + f.engine.stats().running, 0)
      << "requests of the first problem are left";
  EXPECT_EQ(message(f.options(2, 2, 1, 8, 4), "chain 1+1"), "");
  EXPECT_EQ(message(f.options(2, 3, 1, 8, 4), "x"), "the number of candidates is 3, expected 1 to 2");
  EXPECT_EQ(message(f.options(2, 2, 1, 8, 9), "x"), "the tail is 9, expected 1 to 8");
  EXPECT_EQ(message(f.options(0, 1, 1, 8, 4), "x"), "the population is 0, expected 1 to 4096");
  EXPECT_EQ(message(f.options(2, 2, -1, 8, 4), "x"), "the number of rounds is -1, expected 0 to 1000");
}

TEST(Aggregate, TheMessageShowsEachCandidateOnce) {
  const AggregateTemplate shipped;
  const std::vector<std::string> two = {"left {{ x }} 1", "right"}, one = {"only"};
  EXPECT_EQ(shipped.message("sort 2 1", two),
            "sort 2 1\nSome candidates may be wrong. Give one solution.\n[1] left {{ x }} 1\n[2] right");
  EXPECT_EQ(shipped.message("sort 2 1", one),
            "sort 2 1\nRefine this candidate, which may be wrong.\n[1] only");
  EXPECT_THROW(AggregateTemplate("{{ problem }}", "none").message("p", one), Error);
  EXPECT_THROW(AggregateTemplate("{{ candidates[0] }}{{ candidates[0] }}", "twice").message("p", one), Error);
  EXPECT_THROW(AggregateTemplate("{% for %}", "bad"), Error);
  EXPECT_EQ(AggregateTemplate("{{ problem }}: {{ candidates[0] }}", "own").message("p", one), "p: only");
}

TEST(Aggregate, IdsOfCandidatesStandInThePromptAsTheyAre) {
  Fixture f;
  const ReasonProblem problem = Fixture::problem("chain 1+1");
  // Ids that no encoding of their text gives would change if they were rendered.
  const std::vector<Ids> candidates = {f.tokenizer.encode("ab"), f.tokenizer.encode("12")};
  const Ids spliced =
      aggregate_prompt(f.reasoner.aggregate, f.chat, f.tokenizer, problem.prompt, candidates, {}).ids;
  const Ids encoded = f.chat.prompt_ids(
      f.reasoner.aggregate.conversation(problem.prompt, std::vector<std::string>{"ab", "12"}), f.tokenizer,
      {.add_generation_prompt = true});
  EXPECT_EQ(spliced, encoded);
}

TEST(Aggregate, ExamplesTakeTheFirstRightCandidate) {
  const AggregateTemplate shipped;
  chat::Conversation problem;
  problem.messages = {chat::text_message("user", "sort 2 1")};
  chat::Message teacher = chat::text_message("assistant", "1 2");
  teacher.reasoning_content = "1: 2\n2:";
  const std::vector<Candidate> some = {{"x", "2 1", false}, {"y", "1 2", true}, {"z", "1 2", true}};
  chat::Conversation example = aggregation_example(shipped, problem, some, teacher, AggregationReply::choice);
  ASSERT_EQ(example.messages.size(), 2u);
  EXPECT_EQ(*example.messages[1].reasoning_content, "[1] 2 1 no\n[2] 1 2 yes");
  EXPECT_EQ(*example.messages[1].content, "1 2");
  const std::vector<Candidate> none = {{"x", "2 1", false}, {"y", "", false}};
  example = aggregation_example(shipped, problem, none, teacher, AggregationReply::choice);
  EXPECT_EQ(*example.messages[1].reasoning_content, "[1] 2 1 no\n[2] nothing no\n1: 2\n2:");
  EXPECT_EQ(*example.messages[1].content, "1 2");
  for (const auto& candidates : {some, none}) {
    example = aggregation_example(shipped, problem, candidates, teacher, AggregationReply::solution);
    EXPECT_EQ(example.messages[1], teacher) << "the teacher's own words, whatever the candidates are";
    EXPECT_NE(example.messages[0].content->find("[1] x"), std::string::npos);
  }
}

TEST(Aggregate, RowsOfBothFormsComeFromTheSameRollouts) {
  Fixture f;
  const auto environment = environments::find_environment("sort");
  const environments::Problem problem = environment->make(1, 3, 4);
  const RsaOptions o = f.options(4, 2, 0, 12, 6);
  const ReasonProblem asked{problem.prompt, 5};
  const RsaResult result = markovian_rsa(f.reasoner, {&asked, 1}, o).front();
  const auto rows = [&](AggregationForm form, double expert) {
    return aggregation_rows(f.reasoner.aggregate, f.tokenizer, *environment, problem, result.last(), o,
                            {.form = form, .rows = 8, .expert = expert});
  };
  const auto messages = rows(AggregationForm::messages, 0), prompts = rows(AggregationForm::prompts, 0);
  ASSERT_EQ(messages.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const chat::Conversation row = chat::read_conversation(messages[i], "row");
    const auto prompt = nlohmann::json::parse(prompts[i]);
    EXPECT_EQ(prompt["prompt"][0]["content"], *row.messages[0].content);
    EXPECT_EQ(prompt["id"], problem.id());
    EXPECT_EQ(environment->judge(problem, row.messages.back()).reward, 1);
  }
  EXPECT_GE(std::set<std::string>(messages.begin(), messages.end()).size(), 4u);
  EXPECT_EQ(messages, rows(AggregationForm::messages, 0));
  std::string experts;  // half of a teacher's candidates have a mistake
  for (const std::string& row : rows(AggregationForm::messages, 1))
    experts += *chat::read_conversation(row, "row").messages[1].reasoning_content + "\n";
  EXPECT_NE(experts.find("[1] "), std::string::npos);
  EXPECT_NE(experts.find(" yes"), std::string::npos);
  EXPECT_NE(experts.find(" no"), std::string::npos);
}

}  // namespace ingot::reason::markovian_rsa_test
