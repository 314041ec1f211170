// Planted candidates: mistakes that every environment's verifier refuses, rows whose labels are the
// verifier's.
#include "reason/planted_rows.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "reason/mistake.h"
#include "support/environment_names.h"

namespace ingot::reason::planted_rows_test {

using environments::TraceStyle;

TEST(Mistake, EveryEnvironmentRefusesIt) {
  for (const std::string& name : test::built_in_environments()) {
    const auto environment = environments::find_environment(name);
    const environments::DifficultyRange range = environment->difficulty();
    int found = 0, asked = 0;
    for (uint64_t number = 0; number < 12; ++number) {
      const int64_t difficulty = std::min(range.most, range.least + static_cast<int64_t>(number % 4));
      const environments::Problem problem = environment->make(1, number, difficulty);
      const Random random(number, RandomPurpose::test);
      const auto right = environment->solve(problem, random, TraceStyle::checked);
      ASSERT_TRUE(right) << name;
      if (environment->judge(problem, *right).reward < 1) continue;
      ++asked;
      const auto wrong = with_mistake(*environment, problem, *right, false, random);
      if (!wrong) continue;
      ++found;
      EXPECT_LT(environment->judge(problem, *wrong).reward, 1) << problem.id() << ": " << *wrong->content;
      EXPECT_NE(environment->judge(problem, *wrong).answer, "") << problem.id();
      EXPECT_EQ(wrong->reasoning_content, right->reasoning_content);
      EXPECT_EQ(wrong->content, with_mistake(*environment, problem, *right, false, random)->content);
    }
    EXPECT_GE(found * 10, asked * 9) << name << ": a change of a right answer is hardly ever right";
  }
}

TEST(Mistake, InReasoningTheWordIsTheSame) {
  const auto environment = environments::find_environment("chain");
  int found = 0;
  for (uint64_t number = 0; number < 30; ++number) {
    const environments::Problem problem = environment->make(1, number, 3);
    const auto right = environment->solve(problem, Random(1, RandomPurpose::test), TraceStyle::checked);
    const auto wrong = with_mistake(*environment, problem, *right, true, Random(number, RandomPurpose::test));
    if (!wrong) continue;
    ++found;
    EXPECT_NE(wrong->reasoning_content, right->reasoning_content);
    EXPECT_NE(wrong->reasoning_content->find(*wrong->content), std::string::npos)
        << *wrong->reasoning_content << " / " << *wrong->content;
  }
  EXPECT_GT(found, 20);
  // The last line claims and checks the wrong number: nothing of the right one is left in it.
  const environments::Problem sort = environments::problem_of("sort/1/1@3");
  chat::Message reply = *environments::find_environment("sort")->solve(sort, Random(1, RandomPurpose::test),
                                                                       TraceStyle::answer);
  const std::string last = reply.content->substr(reply.content->rfind(' ') + 1);
  reply.reasoning_content = fmt::format("a {0}\nx-{0}={0} ? {0}+{0} yes\nend", last);
  std::set<std::string> lines;
  for (uint64_t draw = 0; draw < 20; ++draw)
    if (const auto wrong = with_mistake(*environments::find_environment("sort"), sort, reply, true,
                                        Random(draw, RandomPurpose::test)))
      lines.insert(*wrong->reasoning_content);
  ASSERT_GE(lines.size(), 2u);
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.starts_with(fmt::format("a {}\nx-", last))) << line;
    EXPECT_EQ(line.find(last + "+"), line.npos) << line;
    EXPECT_EQ(line.find("=" + last), line.npos) << line;
  }
  chat::Message silent = chat::text_message("assistant", "5");
  EXPECT_FALSE(
      with_mistake(*environment, environment->make(1, 1, 3), silent, true, Random(1, RandomPurpose::test)))
      << "there is no reasoning to change";
  silent.content = "";
  EXPECT_FALSE(
      with_mistake(*environment, environment->make(1, 1, 3), silent, false, Random(1, RandomPurpose::test)));
}

environments::RowRequest request(const std::string& mix, double no_think = 0) {
  environments::RowRequest r;
  r.mix = {environments::problem_mix(mix)};
  r.styles = {TraceStyle::checked, TraceStyle::slips};
  r.no_think = no_think;
  return r;
}

struct Labels {
  int yes = 0, no = 0;
};
/// Of a reply's lines "[1] 2 3 5 no".
Labels labels_of(const std::string& reasoning) {
  Labels labels;
  for (size_t at = 0; at < reasoning.size();) {
    const size_t end = std::min(reasoning.find('\n', at), reasoning.size());
    const std::string line = reasoning.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] != '[') continue;
    labels.yes += line.ends_with(" yes") ? 1 : 0;
    labels.no += line.ends_with(" no") ? 1 : 0;
  }
  return labels;
}

TEST(PlantedRows, TeachToPickTheRightCandidate) {
  const environments::RowRequest drawn_from = request("sort:3-5");
  Labels all;
  int mixed = 0, repeated = 0;
  for (uint64_t number = 0; number < 60; ++number) {
    const std::string text =
        planted_row({}, request("sort:3-5"), number, {.tail = 400, .compaction = Compaction::hybrid});
    EXPECT_EQ(text,
              planted_row({}, request("sort:3-5"), number, {.tail = 400, .compaction = Compaction::hybrid}));
    const chat::Conversation row = chat::read_conversation(text, "row");
    ASSERT_EQ(row.messages.size(), 2u);
    const auto drawn = environments::drawn_problem(drawn_from, number);
    EXPECT_EQ(drawn.mix->environment->judge(drawn.problem, row.messages[1]).reward, 1);
    // Hybrid shows the answers themselves, which the verifier judges as the reply says.
    std::set<std::string> shown;
    std::vector<bool> right;
    const std::string& asked = *row.messages[0].content;
    for (int i = 1; i <= 4; ++i) {
      const std::string mark = fmt::format("\n[{}] ", i);
      const size_t begin = asked.find(mark) + mark.size();
      const std::string answer = asked.substr(begin, asked.find('\n', begin) - begin);
      repeated += shown.insert(answer).second ? 0 : 1;
      right.push_back(drawn.mix->environment->judge(drawn.problem, answer).reward >= 1);
    }
    const auto first = std::find(right.begin(), right.end(), true);
    const Labels labels = labels_of(*row.messages[1].reasoning_content);
    EXPECT_EQ(labels.yes, first != right.end() ? 1 : 0) << text;
    EXPECT_EQ(labels.no, first - right.begin()) << text;
    mixed += first != right.end() && std::find(right.begin(), right.end(), false) != right.end() ? 1 : 0;
    all.yes += labels.yes, all.no += labels.no;
  }
  EXPECT_GT(mixed, 40);
  EXPECT_GT(repeated, 20);
  EXPECT_GT(all.no, 30);
}

TEST(PlantedRows, SharesTailsAndForms) {
  const auto row = [](uint64_t number, PlantedOptions o, double no_think = 0) {
    return planted_row({}, request("chain:3", no_think), number, o);
  };
  for (uint64_t number = 0; number < 10; ++number) {
    const chat::Conversation right =
                                 chat::read_conversation(row(number, {.candidates = 3, .right = 1}), "row"),
                             wrong = chat::read_conversation(
                                 row(number, {.candidates = 3, .right = 0, .compaction = Compaction::pacore}),
                                 "row");
    EXPECT_EQ(labels_of(*right.messages[1].reasoning_content).yes, 1);
    EXPECT_EQ(labels_of(*wrong.messages[1].reasoning_content).no, 3);
    EXPECT_GT(wrong.messages[1].reasoning_content->size(), right.messages[1].reasoning_content->size())
        << "where none is right the teacher solves it";
    const auto prompt =
        nlohmann::json::parse(row(number, {.form = AggregationForm::prompts, .candidates = 3, .right = 1}));
    EXPECT_EQ(prompt["prompt"][0]["content"], *right.messages[0].content);
    EXPECT_EQ(prompt["id"], environments::drawn_problem(request("chain:3"), number).problem.id());
  }
  const chat::Conversation plain = chat::read_conversation(row(1, {}, 1), "row");
  ASSERT_EQ(plain.messages.size(), 3u);
  EXPECT_EQ(*plain.messages[0].content, "/no_think");
  EXPECT_FALSE(plain.messages[2].reasoning_content);
  const std::string shown =
      *chat::read_conversation(row(2, {.candidates = 1, .right = 1, .tail = 5}), "row").messages[0].content;
  EXPECT_EQ(shown.size() - shown.find("\n[1] "), 5u + 5u) << shown;
  EXPECT_NE(shown.find("Refine this candidate"), std::string::npos);
  for (const PlantedOptions& bad :
       {PlantedOptions{.candidates = 0}, PlantedOptions{.right = 1.5}, PlantedOptions{.tail = 0}})
    EXPECT_THROW(row(1, bad), Error);
}

}  // namespace ingot::reason::planted_rows_test
