// Pairs of a model and a verifier: the best answer against the worst, strong against weak, and what makes
// none.
#include "post/preference/make_pairs.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/preference_row.h"
#include "environments/environment.h"

namespace ingot::test::make_pairs_test {
namespace {

namespace envs = environments;

/// Answers from a table: by the problem's number and the sample's.
class TableModel final : public TaskModel {
 public:
  using Table = std::function<std::string(int64_t number, int64_t sample)>;
  explicit TableModel(Table table) : table_(std::move(table)) {}
  int64_t context() const override { return 1000; }
  std::vector<int32_t> encode(const std::string&) const override { return {}; }
  std::optional<int32_t> begin() const override { return {}; }
  int32_t prefix() const override { return 0; }
  std::vector<ContinuationScore> score(std::span<const ScoreRequest>) override { return {}; }
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling& sampling) override {
    std::vector<std::vector<Answer>> all;
    for (const AnswerRequest& r : requests) {
      std::vector<Answer>& some = all.emplace_back();
      for (int64_t s = 0; s < sampling.samples; ++s) {
        const std::string text = table_(static_cast<int64_t>(r.key), s);
        some.push_back({text, 3, text == "cut"});
      }
    }
    return all;
  }
  ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode) const override {
    return {std::vector<int32_t>(turns.back().content.size(), 1), "", false};
  }
  ParsedAnswer parse_answer(const std::string& text, bool) const override {
    const size_t end = text.find('|');
    return end == std::string::npos ? ParsedAnswer{"", text}
                                    : ParsedAnswer{text.substr(0, end), text.substr(end + 1)};
  }

 private:
  Table table_;
};

std::string right(int64_t number) {
  const envs::EnvironmentPointer e = envs::find_environment("sort");
  const envs::Problem p = e->make(0, static_cast<uint64_t>(number), 3);
  return *e->solve(p, Random(1, RandomPurpose::test), envs::TraceStyle::answer)->content;
}

PairOptions options() {
  PairOptions o;
  o.environment = "sort";
  o.easiest = o.hardest = 3;
  o.first = 7, o.count = 4;
  o.sampling.samples = 3;
  return o;
}

}  // namespace

TEST(MakePairs, TheBestAnswerAgainstTheWorst) {
  TableModel model([](int64_t number, int64_t sample) -> std::string {
    if (number == 8) return right(8);  // all equal
    if (number == 9 && sample > 0) return "cut";
    return sample == 1 ? "because|" + right(number) : "no idea";
  });
  std::vector<std::string> rows;
  const PairReport r =
      make_pairs(model, nullptr, options(), [&](const std::string& row) { rows.push_back(row); });
  EXPECT_EQ(r.problems, 4);
  EXPECT_EQ(r.pairs, 2);
  EXPECT_EQ(r.all_equal, 2);
  EXPECT_EQ(r.cut, 2);
  EXPECT_DOUBLE_EQ(r.reward, (1.0 + 3 + 0 + 1) / (3 + 3 + 1 + 3));
  ASSERT_EQ(rows.size(), 2u);
  const auto j = nlohmann::json::parse(rows[0]);
  EXPECT_EQ(j.at("id"), "sort/0/7@3");
  EXPECT_EQ(j.at("rewards"), nlohmann::json({1.0, 0.0}));
  const chat::PreferenceRow row = chat::read_preference(rows[0], "row");
  EXPECT_EQ(row.chosen->messages.back().reasoning_content, "because");
  EXPECT_EQ(row.rejected->messages.back().content, "no idea");
  EXPECT_FALSE(row.chosen->messages.front().in_loss);
}

TEST(MakePairs, StrongAgainstWeak) {
  TableModel strong(
      [](int64_t number, int64_t) { return number == 8 ? std::string("no idea") : right(number); }),
      weak([](int64_t number, int64_t) { return number == 8 ? right(8) : std::string("hm"); });
  int64_t rows = 0;
  const PairReport r = make_pairs(strong, &weak, options(), [&](const std::string&) { ++rows; });
  EXPECT_EQ(rows, 3) << "where the weak one is better there is no pair";
  EXPECT_EQ(r.pairs, 3);
}

TEST(MakePairs, WhatCannotBeIsRefused) {
  TableModel model([](int64_t, int64_t) { return std::string(); });
  PairOptions o = options();
  o.hardest = 100000;
  EXPECT_THROW(make_pairs(model, nullptr, o, [](const std::string&) {}), Error);
  o = options();
  o.sampling.max_tokens = 999;
  EXPECT_THROW(make_pairs(model, nullptr, o, [](const std::string&) {}), Error);
  o.environment = "srt";
  EXPECT_THROW(make_pairs(model, nullptr, o, [](const std::string&) {}), Error);
}

}  // namespace ingot::test::make_pairs_test
