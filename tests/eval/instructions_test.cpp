// Instruction checkers against IFEval's own (fixture of tools/oracle/make_instructions.py), and refusals.
#include "eval/instructions.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/support.h"

namespace ingot::test::instructions_test {

TEST(Instructions, VerdictsAreTheReferences) {
  const TaskJson rows = TaskJson::parse(read_text(fixture("eval/instructions.json")));
  ASSERT_EQ(rows.size(), 240u);
  int followed = 0;
  for (const TaskJson& r : rows) {
    const TaskJson found = instruction_metrics(r["row"], r["answer"].get<std::string>(), "row");
    EXPECT_EQ(found, r["metrics"]) << r.dump(1);
    followed += found["prompt_level_loose_acc"].get<bool>() ? 1 : 0;
  }
  EXPECT_GT(followed, 10);
}

TEST(Instructions, OwnRules) {
  const auto follows = [](const char* name, const TaskJson& kwargs, const char* answer) {
    return follows_instruction(name, kwargs, answer, "row");
  };
  const TaskJson three = {{"num_sentences", 3}, {"relation", "at least"}};
  EXPECT_TRUE(follows("length_constraints:number_sentences", three, "One. Two! \"Three?\""));
  EXPECT_FALSE(follows("length_constraints:number_sentences", three, "Version 1.2 is out. Two"));
  EXPECT_TRUE(follows("change_case:english_capital", {}, "ALL OF IT, 3 TIMES"));
  EXPECT_FALSE(follows("change_case:english_capital", {}, "NEARLY all"));
  EXPECT_FALSE(follows("change_case:english_lowercase", {}, "123"));
  const TaskJson two = {{"capital_frequency", 2}, {"capital_relation", "less than"}};
  EXPECT_TRUE(follows("change_case:capital_word_frequency", two, "ONE word, Two words"));
  EXPECT_FALSE(follows("change_case:capital_word_frequency", two, "ONE TWO three"));
}

TEST(Instructions, RefusalsNameRowAndField) {
  const auto message = [](const TaskJson& row) -> std::string {
    try {
      instruction_metrics(row, "text", "'x.jsonl' row 7");
    } catch (const Error& e) {
      return std::string(e.what()) + "; " + e.hint();
    }
    return "none";
  };
  EXPECT_NE(
      message({{"kwargs", TaskJson::array()}}).find("'x.jsonl' row 7: 'instruction_id_list' is missing"),
      std::string::npos);
  const std::string unknown =
      message({{"instruction_id_list", {"language:response_language"}}, {"kwargs", {TaskJson::object()}}});
  EXPECT_NE(unknown.find("no check for the instruction 'language:response_language'"), std::string::npos)
      << unknown;
  const std::string lacks = message(
      {{"instruction_id_list", {"detectable_format:number_bullet_lists"}}, {"kwargs", {TaskJson::object()}}});
  EXPECT_NE(lacks.find("lacks 'num_bullets'"), std::string::npos) << lacks;
}

}  // namespace ingot::test::instructions_test
