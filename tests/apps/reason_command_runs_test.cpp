// `ingot reason` and `ingot eval` on problems of environments, with a model that has seen two steps.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::reason_command_runs_test {

ProcessResult ingot(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), INGOT_BINARY);
  return run_process(arguments);
}

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(ReasonCommand, MeasuresRoundsAndWritesRows) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(600));
  std::string recipe = base_recipe(folder.path(), 512,
                                   "vocab = 300\nspecial_tokens = [\"<|im_start|>\", \"<|im_end|>\", "
                                   "\"<think>\", \"</think>\"]");
  recipe.replace(recipe.find("[data]\n"), 7, "[data]\nchat_template = \"chatml-think\"\n");
  write_text(folder / "base.toml", recipe);
  const ProcessResult trained = ingot({"run", folder / "base.toml"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::vector<std::string> reason = {"reason",          folder / "base",
                                           "--population",    "4",
                                           "--candidates",    "2",
                                           "--rounds",        "2",
                                           "--budget",        "8",
                                           "--tail",          "4",
                                           "--answer-tokens", "4"};
  const std::vector<std::string> problems = joined(reason, {"sort:2", "chain:1", "--problems", "3"});
  const ProcessResult measured = ingot(joined(problems, {"--json"}));
  ASSERT_EQ(measured.exit_code, 0) << measured.output;
  const auto json = nlohmann::json::parse(measured.output);
  ASSERT_EQ(json["results"].size(), 6u);
  EXPECT_EQ(json["results"][2]["round"], 2);
  EXPECT_EQ(json["results"][2]["problems"], 3);
  // Each rollout has at most 8 + 4 tokens, two marks and a stop token.
  EXPECT_LE(json["results"][2]["tokens"], 3 * 4 * 15);
  EXPECT_GT(json["results"][2]["tokens"], json["results"][1]["tokens"]);
  EXPECT_EQ(measured.output, ingot(joined(problems, {"--json", "--at-once", "1"})).output)
      << "what is asked at once matters";
  EXPECT_NE(ingot(problems).output.find("longest prompt"), std::string::npos);

  const ProcessResult kept = ingot(joined(problems, {"--record", folder / "base", "--name", "two steps"}));
  EXPECT_NE(kept.output.find("kept in "), std::string::npos) << kept.output;
  EXPECT_NE(kept.output.find("prompts with 2 candidates have at most "), std::string::npos) << kept.output;
  EXPECT_EQ(ingot({"report", folder / "base"}).exit_code, 0);
  const std::string page = read_text(folder / "base/report.html");
  for (const char* part : {"Test-time compute", "rsa 4 2 2, two steps", "sort:2", "chain:1", "majority of 4"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_NE(ingot(joined(problems, {"--record", folder.path(), "--name", "x"})).output.find("run.json"),
            std::string::npos);

  const auto answer = nlohmann::json::parse(ingot(joined(reason, {"--prompt", "sort 2 1", "--json"})).output);
  EXPECT_EQ(answer["rounds"].size(), 3u);
  EXPECT_EQ(answer["rounds"][1]["drawn"][3].size(), 2u);

  const ProcessResult rows = ingot(
      joined(problems, {"--rows", folder / "rows.jsonl", "--rows-per-problem", "2", "--expert", "0.5"}));
  EXPECT_NE(rows.output.find("12 rows of 6 problems"), std::string::npos) << rows.output;
  const ProcessResult solutions = ingot(
      joined(problems, {"--rows", folder / "solutions.jsonl", "--reply", "solution", "--expert", "0.5"}));
  EXPECT_EQ(solutions.exit_code, 0) << solutions.output;
  std::istringstream lines(read_text(folder / "solutions.jsonl"));
  for (std::string line; std::getline(lines, line);)
    EXPECT_NE(nlohmann::json::parse(line)["messages"][1]["reasoning_content"].get<std::string>().substr(0, 3),
              "[1]")
        << "no verdicts: " << line;
  const ProcessResult prompts =
      ingot(joined(problems, {"--rows", folder / "prompts.jsonl", "--form", "prompts"}));
  EXPECT_EQ(prompts.exit_code, 0) << prompts.output;
  EXPECT_EQ(ingot({"environment", "show", folder / "prompts.jsonl"}).exit_code, 0);

  const std::vector<std::string> eval = {"eval", folder / "base", "--tasks", "sort@2-3", "--limit", "3"};
  EXPECT_NE(ingot(joined(eval, {"--chat-template", "none"})).output.find("no chat template"),
            std::string::npos);
  EXPECT_NE(
      ingot({"eval", folder / "base", "--tasks", "sort@2-3+text", "--limit", "3"}).output.find("reward"),
      std::string::npos);
  for (const char* method : {"majority", "rsa"}) {
    const ProcessResult scored =
        ingot(joined(eval, {"--method", method, "--population", "4", "--candidates", "2", "--budget", "8",
                            "--tail", "4", "--answer-tokens", "4"}));
    EXPECT_NE(scored.output.find("majority@4"), std::string::npos) << scored.output;
  }
  EXPECT_EQ(ingot(joined(eval, {"--population", "4"})).exit_code, 2) << "options of a method without one";
  EXPECT_NE(ingot(joined(eval, {"--method", "luck"})).output.find("expected majority or rsa"),
            std::string::npos);
}

TEST(ReasonCommand, SaysWhatIsWrong) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& part) {
    const ProcessResult r = ingot(joined({"reason"}, words));
    EXPECT_GT(r.exit_code, 0);
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
  };
  refused({"none"}, "problems or a question are missing");
  refused({"none", "srot:2"}, "did you mean 'sort'?");
  refused({"none", "sort:2", "--candidates", "17"}, "the number of candidates is 17, expected 1 to 16");
  refused({"none", "sort:2", "--tail", "500"}, "the tail is 500, expected 1 to 128");
  refused({"none", "sort:2", "--compaction", "zip"}, "hybrid");
  refused({"none", "sort:2"}, "none");
  refused({"none", "sort:2", "--record", "x"}, "--record and --name go together");
  refused({"none", "sort:2", "--reply", "solution"}, "--reply is of rows");
  refused({"none", "--prompt", "x", "--record", "x", "--name", "y"}, "give environments");
  for (const char* flag : {"--population", "--rounds", "--budget", "--tail", "--problems", "--expert"})
    for (const char* value : {"-1", "nan", "x"}) refused({"none", "sort:2", flag, value}, "found");
}

}  // namespace ingot::test::reason_command_runs_test
