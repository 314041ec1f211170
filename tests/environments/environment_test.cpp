// The contract of every environment: problems are pure functions, held-out problems are no training problems,
// a reply is judged by its answer alone, verifiers that fail give no reward; the registry and its errors.
#include "environments/environment.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <thread>

#include "base/error.h"
#include "environments/answer.h"
#include "support/environment_names.h"

namespace ingot::environments::environment_test {

Random dice(uint64_t stream) {
  return {7, RandomPurpose::test, stream};
}

/// Some difficulties of the range, both ends among them.
std::vector<int64_t> difficulties(const Environment& environment, int64_t most) {
  const DifficultyRange range = environment.difficulty();
  const int64_t count = std::min(most, range.most - range.least + 1);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(range.least + (count == 1 ? 0 : i * (range.most - range.least) / (count - 1)));
  return all;
}

const std::string& prompt_of(const Problem& problem) {
  return *problem.prompt.messages.back().content;
}

TEST(Environments, ProblemsArePureFunctionsOfTheirId) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    for (const int64_t difficulty : difficulties(*environment, 4)) {
      const Problem first = environment->make(3, 17, difficulty);
      environment->make(4, 2, difficulty);  // in between: no state
      Problem second, other_thread;
      std::thread([&] { other_thread = environment->make(3, 17, difficulty); }).join();
      second = problem_of(first.id());
      for (const Problem& same : {second, other_thread}) {
        EXPECT_EQ(first.prompt, same.prompt) << first.id();
        EXPECT_EQ(first.data, same.data) << first.id();
      }
      std::set<std::string> prompts;
      for (uint64_t number = 0; number < 20; ++number)
        prompts.insert(prompt_of(environment->make(3, number, difficulty)));
      EXPECT_GT(prompts.size(), 3u) << name << " at " << difficulty << " does not depend on the number";
      EXPECT_EQ(first.prompt.messages.back().role, "user");
    }
  }
}

TEST(Environments, OwnSolutionsAreRightInEveryStyle) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    for (const int64_t difficulty : difficulties(*environment, 5))
      for (uint64_t number = 0; number < 3; ++number) {
        const Problem problem = environment->make(1, number, difficulty);
        for (const TraceStyle style :
             {TraceStyle::answer, TraceStyle::plain, TraceStyle::checked, TraceStyle::slips}) {
          const auto reply = environment->solve(problem, dice(number), style);
          ASSERT_TRUE(reply) << problem.id();
          const Verdict verdict = environment->judge(problem, *reply);
          EXPECT_EQ(verdict.reward, 1)
              << problem.id() << " " << prompt_of(problem) << "\n"
              << reply->reasoning_content.value_or("") << "\n-> " << *reply->content << "\n"
              << verdict.note;
          EXPECT_FALSE(verdict.infrastructure) << verdict.note;
          EXPECT_EQ(style == TraceStyle::answer, !reply->reasoning_content) << problem.id();
          if (style != TraceStyle::answer) {
            EXPECT_FALSE(reply->reasoning_content->empty()) << problem.id();
          }
        }
        EXPECT_EQ(environment->solve(problem, dice(1), TraceStyle::slips),
                  environment->solve(problem, dice(1), TraceStyle::slips));
      }
  }
}

TEST(Environments, HeldOutProblemsAreNoTrainingProblems) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    const DifficultyRange range = environment->difficulty();
    const int64_t difficulty = (range.least + range.most) / 2;
    std::set<std::string> training;
    for (uint64_t number = 0; number < 60; ++number)
      training.insert(prompt_of(environment->make(number % 3, number, difficulty)));
    for (uint64_t number = 0; number < 15; ++number)
      EXPECT_FALSE(training.contains(prompt_of(environment->make(kHeldOutSeeds, number, difficulty))))
          << name;
  }
}

TEST(Environments, OnlyTheAnswerCounts) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    for (const int64_t difficulty : difficulties(*environment, 6)) {
      const Problem problem = environment->make(2, 5, difficulty);
      const std::string right = *environment->solve(problem, dice(1), TraceStyle::answer)->content;
      const auto reward = [&](const std::string& content, const std::string& reasoning = "") {
        chat::Message reply = chat::text_message("assistant", content);
        if (!reasoning.empty()) reply.reasoning_content = reasoning;
        const Verdict verdict = environment->judge(problem, reply);
        EXPECT_FALSE(verdict.infrastructure) << verdict.note;
        return verdict.reward;
      };
      EXPECT_EQ(reward(right, "nonsense"), 1);
      EXPECT_EQ(reward("  " + right + "\n"), 1);
      EXPECT_EQ(reward("The answer is \\boxed{" + right + "}."), 1) << problem.id();
      EXPECT_EQ(reward("Because of this\n#### " + right), 1);
      EXPECT_EQ(reward("So <answer>" + right + "</answer>"), 1);
      // What a policy would find if it counted.
      EXPECT_EQ(reward("", right), 0) << "the answer stands in the reasoning alone";
      EXPECT_EQ(reward(prompt_of(problem)), 0) << "an echo of the prompt " << problem.id();
      EXPECT_EQ(reward("\\boxed{" + right + "} \\boxed{17 wrong}"), 0);
      EXPECT_EQ(reward("\\boxed{17 wrong} \\boxed{" + right + "}"), 0);
      EXPECT_EQ(reward("\\boxed{" + right), 0);
      EXPECT_EQ(reward("\\boxed{}"), 0);
      EXPECT_EQ(reward(right + "\n" + right + " "), 0) << "several lines, none of them marked";
      for (const char* wrong :
           {"nan",  "NaN",          "inf",      "-inf",     "1e999", "null", "yes",  "?", "*",
            ".",    "\\boxed{nan}", "#### inf", "()",       "[]",    "{}",   "0x10", "x", "the answer",
            "None", "any",          "1/0",      "\xff\xfe", "%s%n",  ",",    "-"})
        EXPECT_EQ(right == wrong ? 0 : reward(wrong), 0) << problem.id() << " accepts " << wrong;
      std::string wide;  // the digits of another script
      for (const char c : right)
        wide += c >= '0' && c <= '9' ? std::string("\xef\xbc") + static_cast<char>(0x90 + c - '0')
                                     : std::string(1, c);
      EXPECT_EQ(wide == right ? 0 : reward(wide), 0) << problem.id();
      EXPECT_EQ(reward(right + " " + right + " " + right + " extra"), 0) << problem.id();
      EXPECT_EQ(reward(std::string(20'000, '1')), 0);
      EXPECT_EQ(reward(std::string(5'000, '(')), 0);
    }
  }
}

/// An environment of a program's own, whose verifier fails in every way.
class Failing : public Environment {
 public:
  const std::string& name() const override { return name_; }
  const std::string& about() const override { return name_; }
  DifficultyRange difficulty() const override { return {0, 0}; }
  Problem make(uint64_t seed, uint64_t number, int64_t difficulty) const override {
    return {name_, seed, number, difficulty, {{chat::text_message("user", "?")}, "", ""}, "{}"};
  }
  std::optional<chat::Message> solve(const Problem&, const Random&, TraceStyle) const override { return {}; }

 protected:
  Verdict verify(const Problem&, const std::string& answer) const override {
    if (answer == "throw") throw std::runtime_error("no connection");
    if (answer == "nan") return reward(std::numeric_limits<double>::quiet_NaN());
    return reward(0.25);
  }

 private:
  static Verdict reward(double value) {
    Verdict verdict;
    verdict.reward = value;
    return verdict;
  }
  std::string name_ = "failing_test";
};

TEST(Environments, VerifierThatFailsGivesNoReward) {
  const Failing environment;
  const Problem problem = environment.make(1, 2, 0);
  const Verdict thrown = environment.judge(problem, std::string("throw"));
  EXPECT_TRUE(thrown.infrastructure);
  EXPECT_EQ(thrown.reward, 0);
  EXPECT_EQ(thrown.note, "the verifier of failing_test/1/2@0 failed: no connection");
  const Verdict nan = environment.judge(problem, std::string("nan"));
  EXPECT_TRUE(nan.infrastructure);
  EXPECT_EQ(nan.reward, 0);
  const Verdict some = environment.judge(problem, std::string("some"));
  EXPECT_FALSE(some.infrastructure);
  EXPECT_EQ(some.reward, 0.25);
  EXPECT_EQ(some.answer, "some");
  EXPECT_FALSE(environment.judge(problem, std::string("")).infrastructure)
      << "no answer is the reply's fault";
}

TEST(Environments, RegistryKeepsNamesApart) {
  register_environment("own_test", [] { return std::make_shared<Failing>(); });
  EXPECT_EQ(find_environment("own_test")->name(), "failing_test");
  EXPECT_EQ(find_environment("own_test"), find_environment("own_test"));
  EXPECT_THROW(register_environment("own_test", [] { return std::make_shared<Failing>(); }), Error);
  EXPECT_THROW(register_environment("Bad name", [] { return std::make_shared<Failing>(); }), Error);
  try {
    find_environment("countdwon");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "there is no environment 'countdwon'");
    EXPECT_EQ(error.hint(), "did you mean 'countdown'?");
  }
  const EnvironmentPointer sort = find_environment("sort");
  EXPECT_THROW(sort->make(1, 1, sort->difficulty().most + 1), Error);
  EXPECT_THROW(sort->make(1, 1, sort->difficulty().least - 1), Error);
  for (const char* id :
       {"sort", "sort/1/2", "sort/1@2", "sort/x/1@4", "/1/2@3", "sort/1/2@", "sort/-1/2@4", "1/2@3", "@", ""})
    EXPECT_THROW(problem_of(id), Error) << id;
}

TEST(Environments, FinalAnswers) {
  const auto answer = [](std::string_view content) { return final_answer(content).text; };
  EXPECT_EQ(answer("42"), "42");
  EXPECT_EQ(answer(" 4  2. \n"), "4 2");
  EXPECT_EQ(answer("so \\boxed{\\frac{1}{2}} it is"), "\\frac{1}{2}");
  EXPECT_EQ(answer("\\boxed{7} and again \\boxed{ 7 }"), "7");
  EXPECT_EQ(answer("\\boxed{7} or \\boxed{8}"), "");
  EXPECT_EQ(answer("text\n#### 18"), "18");
  EXPECT_EQ(answer("#### 18\n#### 19"), "");
  EXPECT_EQ(answer("Answer: 5\n"), "5");
  EXPECT_EQ(answer("we get\nThe final ANSWER: 5 apples.\n"), "5 apples");
  EXPECT_EQ(answer("<answer>a b</answer>"), "a b");
  EXPECT_EQ(answer("<answer>a"), "");
  EXPECT_EQ(answer("a\nb"), "");
  EXPECT_EQ(answer("  \n "), "");
  EXPECT_EQ(final_answer("\\boxed{1").note, "\\boxed{} is not closed");
}

TEST(Environments, NumbersAreExact) {
  const auto number = [](std::string_view text) { return number_of(text).value_or("none"); };
  EXPECT_EQ(number("18"), "18/1");
  EXPECT_EQ(number("$18.50"), "37/2");
  EXPECT_EQ(number("-3/6"), "-1/2");
  EXPECT_EQ(number("\\frac{3}{4}"), "3/4");
  EXPECT_EQ(number("-\\dfrac{10}{4}"), "-5/2");
  EXPECT_EQ(number("1 1/2"), "3/2");
  EXPECT_EQ(number("1,234,567"), "1234567/1");
  EXPECT_EQ(number("75%"), "3/4");
  EXPECT_EQ(number("18 dollars"), "18/1");
  EXPECT_EQ(number("0.1"), number("1/10"));
  EXPECT_EQ(number("007"), "7/1");
  EXPECT_EQ(number("12345678901234567890123"), "12345678901234567890123/1");
  for (const char* none :
       {"",    "nan",          "inf", "1/0", "1,23", "12,3456", "1e5x1",        "=5",         "5=5", "1.2.3",
        "--1", "\xef\xbc\x95", "a 5", "5 6", "0x10", "1_000",   "\\frac{1}{0}", "\\frac{1}2", "3 3", "."})
    EXPECT_EQ(number(none), "none") << none;
  EXPECT_EQ(number(std::string(300, '9')), "none");
  EXPECT_EQ(integer_of("-007"), "-7");
  EXPECT_EQ(integer_of("-0"), "0");
  for (const char* none : {"", "-", "+5", "5.0", "5 ", "--5", "1,000"})
    EXPECT_FALSE(integer_of(none)) << none;
}

}  // namespace ingot::environments::environment_test
