// Every verifier refuses at least twenty answers that are known to be wrong: where one answer is right, those
// of other problems; where several are, written by hand beside the right ones.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "environments/answer.h"
#include "environments/environment.h"
#include "support/environment_names.h"

namespace ingot::environments::verifier_test {

struct Known {
  std::string data;
  std::vector<std::string> right, wrong;
};

/// Environments whose problems have several right answers.
const std::map<std::string, Known>& known_answers() {
  static const std::map<std::string, Known> all = {
      {"countdown",
       {R"({"numbers":[3,4,7],"target":40})",
        {"(3+7)*4", "4*(7+3)", "( 7 + 3 ) * 4", "4*((3)+7)", "\\boxed{4*(3+7)}"},
        {"3+7*4",      "40",
         "10*4",       "(3+7)*4+0",
         "(3+7)*4*1",  "3*7+4",
         "(3+7)*4)",   "((3+7)*4",
         "(3+7)**4",   "(3+7)x4",
         "(3+7)*4=40", "3 7 4",
         "33+7",       "(3+7)/1*4",
         "(3+3)*7-2",  "(3+4)*7",
         "4*7+3",      "(3+7)*4 (3+7)*4",
         "(-3-7)*-4",  "(3+7)(4)",
         "",           "()",
         "3+7",        "(3+7)*4-3+3",
         "036+4",      "99999999999999999999",
         "(3+7)*4.0"}}},
      {"fraction",
       {R"({"a":1,"b":2,"c":1,"d":3,"answer":"5/6"})",
        {"5/6", "10/12", "\\boxed{5/6}", "15/18"},
        {"6/5", "5",   "6",          "2/5",     "1/6",     "-5/6",        "5/6/1", "5/7",
         "4/6", "5/0", "0.8333",     "1/2+1/3", "1/2 1/3", "five sixths", "56",    "5//6",
         "/6",  "5/",  "5/6 or 6/5", "83%",     "nan",     "5\\6"}}},
      {"subset",
       {R"({"numbers":["3","5","8","9"],"target":14})",
        {"5 9", "9 5", "9,5", "5, 9"},
        {"14",     "5",    "9",   "3 5 8", "5 5 4", "7 7",  "5 9 0",  "3 3 8", "8 9",   "3 5 8 9", "5+9",
         "5 9 -0", "3 11", "9 9", "05 9",  "14 0",  "1 13", "5 nine", "[5,9]", "5 9 3", "5 9 x",   "3 8"}}},
      {"maze",
       {R"({"size":3,"cells":"S..##...G"})",
        {"R R D D", "R,R,D,D", "R L R R D D"},
        {"D D R R",
         "R R D",
         "R R D D D",
         "RRDD",
         "r r d d",
         "R D R D",
         "R R R D D",
         "U R R D D",
         "L R R D D",
         "R R D D R",
         "R R",
         "D",
         "1 2 3",
         "R R D D G",
         "right right down down",
         "R R D L",
         "R R D D U D U D U D",
         "R R D X",
         "G",
         "S G",
         "R R D D D U"}}},
      {"path",
       {R"({"nodes":5,"edges":[[0,1,1],[1,2,1],[2,4,1],[0,4,9],[0,3,1],[3,2,1]],"length":3})",
        {"A B C E", "A D C E", "A,B,C,E"},
        {"A E",       "3",    "A B C",     "B C E",     "A C E",   "A B E",     "A B C D E", "E C B A",
         "a b c e",   "ABCE", "A B C E E", "A A B C E", "A B C F", "A B B C E", "A E C E",   "A B A B C E",
         "A D B C E", "E",    "A",         "A B C E 3", "A-B-C-E", "A [ C E",   "A Z C E"}}},
      {"stack_input",
       {R"({"program":["dup","mul","add"],"place":1,"known":3,"result":28})",
        {"5", "05", "\\boxed{5}"},
        {"0",  "1",   "2",   "3",   "4", "6",    "7",  "8",      "9",  "-5", "25",
         "28", "5.0", "3 5", "5 5", "x", "five", "+5", "5 or 6", "10", "55"}}},
      {"stack_program",
       {R"({"tests":[[1,2,2],[5,3,5],[4,4,4],[0,9,9],[9,0,9]]})",
        {"max", "swap max", "max 0 add", "dup drop max"},
        {"min",  "add",       "sub",         "mul",  "drop",        "swap drop", "max max", "max dup",
         "Max",  "max.1",     "max; exit",   "2",    "drop drop 2", "over",      "dup max", "max add",
         "maxx", "max 1 add", "max 1 mul 0", "swap", "max drop",    "nop max"}}},
      {"stack_differ",
       {R"({"first":["max"],"second":["add"]})",
        {"1 2", "5 5", "9,1"},
        {"0 0", "0 5", "5 0", "0 9", "9 0", "1",    "1 2 3", "10 2",  "-1 2",  "1.0 2",         "a b",
         "12",  "",    "1 x", "max", "add", "1 10", "3 -3",  "0 0 1", "1 2 0", "\xef\xbc\x91 2"}}},
  };
  return all;
}

TEST(Verifiers, RefuseTwentyKnownWrongAnswers) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    if (const auto known = known_answers().find(name); known != known_answers().end()) {
      Problem problem;
      problem.environment = name, problem.data = known->second.data;
      for (const std::string& answer : known->second.right)
        EXPECT_EQ(environment->judge(problem, answer).reward, 1) << name << " refuses " << answer;
      EXPECT_GE(known->second.wrong.size(), 20u) << name;
      for (const std::string& answer : known->second.wrong) {
        const Verdict verdict = environment->judge(problem, answer);
        EXPECT_EQ(verdict.reward, 0) << name << " accepts " << answer;
        EXPECT_FALSE(verdict.infrastructure) << name << " " << answer << ": " << verdict.note;
      }
      continue;
    }
    const DifficultyRange range = environment->difficulty();
    const Problem problem = environment->make(1, 0, (range.least + range.most) / 2);
    const Random random(1, RandomPurpose::test);
    // Of a number also those beside it.
    const auto answer_of = [&](const Problem& p) {
      return *environment->solve(p, random, TraceStyle::answer)->content;
    };
    const std::vector<std::string> right = words_of(answer_of(problem));
    std::set<std::string> wrong;
    if (right.size() == 1 && integer_of(right[0]) && right[0].size() < 10)
      for (int64_t off = 1; off <= 10; ++off)
        wrong.insert(
            {std::to_string(std::stoll(right[0]) + off), std::to_string(std::stoll(right[0]) - off)});
    for (uint64_t number = 1; number < 400 && wrong.size() < 30; ++number) {
      const std::string other = answer_of(environment->make(
          1, number, range.least + static_cast<int64_t>(number) % (range.most - range.least + 1)));
      if (words_of(other) != right) wrong.insert(other);
    }
    EXPECT_GE(wrong.size(), 20u) << name;
    for (const std::string& answer : wrong)
      EXPECT_EQ(environment->judge(problem, answer).reward, 0) << problem.id() << " accepts " << answer;
  }
}

}  // namespace ingot::environments::verifier_test
