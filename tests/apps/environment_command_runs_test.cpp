// `ingot environment`: what it prints and writes, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/environment_names.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::environment_command_runs_test {

ProcessResult environment(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {INGOT_BINARY, "environment"});
  return run_process(arguments);
}

void refused(const std::vector<std::string>& arguments, const std::string& part, int code = 1) {
  const ProcessResult r = environment(arguments);
  EXPECT_EQ(r.exit_code, code) << r.output;
  EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
}

TEST(EnvironmentCommand, ListsWhatThereIs) {
  const auto list = nlohmann::json::parse(environment({"list", "--json"}).output);
  ASSERT_EQ(list.size(), built_in_environments().size());
  EXPECT_GE(list.size(), 20u);
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i]["name"], built_in_environments()[i]);
  EXPECT_NE(environment({"list"}).output.find("countdown"), std::string::npos);
}

TEST(EnvironmentCommand, ShowsSolvesAndJudgesOneProblem) {
  const ProcessResult shown =
      environment({"show", "sort", "--difficulty", "4", "--number", "7", "--seed", "2", "--count", "2"});
  EXPECT_NE(shown.output.find("sort/2/7@4\nsort "), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("sort/2/8@4\nsort "), std::string::npos) << shown.output;
  const auto again = nlohmann::json::parse(environment({"show", "sort/2/7@4", "--data", "--json"}).output);
  EXPECT_NE(shown.output.find(again[0]["prompt"][0]["content"].get<std::string>()), std::string::npos);
  const std::string answer = nlohmann::json::parse(again[0]["data"].get<std::string>())["answer"];

  const auto solved =
      nlohmann::json::parse(environment({"solve", "sort/2/7@4", "--style", "slips", "--json"}).output);
  EXPECT_EQ(solved["answer"], answer);
  EXPECT_EQ(solved["verdict"]["reward"], 1);
  EXPECT_NE(environment({"solve", "sort/2/7@4"}).output.find("answer: " + answer + "\nreward: 1"),
            std::string::npos);

  EXPECT_EQ(environment({"judge", "sort/2/7@4", "<think>no</think> \\boxed{" + answer + "}"}).output,
            "reward: 1\n");
  EXPECT_EQ(environment({"judge", "sort/2/7@4", "<think>" + answer + "</think>"}).output,
            "reward: 0 (the reply has no answer)\n");
  EXPECT_EQ(environment({"judge", "sort/2/7@4", "9 9"}).output, "reward: 0 (the answer is wrong)\n");
  EXPECT_EQ(environment({"show", "sort", "--held-out"}).output.find("sort/4294967296/0@2"), 0u);
}

TEST(EnvironmentCommand, JudgesAFileOfReplies) {
  const TempDir folder;
  write_text(folder / "replies.jsonl",
             "{\"id\": \"chain/1/1@1\", \"reply\": \"x\"}\n\n{\"id\": \"chain/1/2@1\", \"reply\": \"y\"}\n");
  const ProcessResult r = environment({"judge", "--rows", folder / "replies.jsonl"});
  EXPECT_NE(r.output.find("0 of 2 right, 0 verifiers failed"), std::string::npos) << r.output;
  const auto verdicts =
      nlohmann::json::parse(environment({"judge", "--rows", folder / "replies.jsonl", "--json"}).output);
  EXPECT_EQ(verdicts[1]["id"], "chain/1/2@1");
  EXPECT_EQ(verdicts[1]["parts"]["correct"], 0);
  write_text(folder / "bad.jsonl", "{\"id\": \"chain/1/1@1\", \"reply\": \"x\"}\n{\"id\": 3}\n");
  refused({"judge", "--rows", folder / "bad.jsonl"}, "line 2 is no reply");
}

TEST(EnvironmentCommand, ExportsRows) {
  const TempDir folder;
  const std::vector<std::string> words = {"export", "sort:3-5", "count*3",     "--rows",     "30", "--seed",
                                          "4",      "--styles", "plain,slips", "--no-think", "0.5"};
  const std::string printed = environment(words).output;
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 30);
  std::vector<std::string> written = words;
  written.insert(written.end(), {"--output", folder / "rows.jsonl"});
  EXPECT_NE(environment(written).output.find("30 rows of 2 environments"), std::string::npos);
  EXPECT_EQ(read_text(folder / "rows.jsonl"), printed);
  for (const std::string form : {"text", "completion", "prompts"}) {
    const std::string row = environment({"export", "sort", "--rows", "1", "--form", form}).output;
    EXPECT_TRUE(nlohmann::json::parse(row).contains(form == "text" ? "text" : "prompt")) << row;
  }
}

TEST(EnvironmentCommand, SaysWhatIsWrong) {
  refused({"show", "countdwon"}, "did you mean 'countdown'?");
  refused({"show", "sort", "--difficulty", "99"}, "difficulties 2 to 24");
  refused({"show", "sort/1@3"}, "ENVIRONMENT/SEED/NUMBER@DIFFICULTY");
  refused({"show", "none.jsonl"}, "none.jsonl");
  refused({"solve", "sort", "--style", "loud"}, "slips");
  refused({"export", "sort:9-3"}, "NAME:LEAST-MOST");
  refused({"export", "sort", "--form", "poem"}, "completion");
  refused({"export", "sort", "--output", "/no/such/folder/x"}, "/no/such/folder");
  refused({"judge"}, "--rows FILE", 2);
  refused({"judge", "sort/1/1@3", "x", "--rows", "y"}, "one of the two", 2);
}

TEST(EnvironmentCommand, ExportsRowsThatShowCandidates) {
  const TempDir folder;
  const std::vector<std::string> options = {"export",  "sort:3-4", "--rows", "20", "--candidates", "3",
                                            "--right", "0.5",      "--tail", "20", "--compaction", "pacore",
                                            "--form"};
  const auto rows = [&](const std::string& form, const std::string& file) {
    std::vector<std::string> all = options;
    all.insert(all.end(), {form, "--output", folder / file});
    return environment(all);
  };
  EXPECT_NE(rows("aggregation", "sft.jsonl").output.find("20 rows of 1 environment"), std::string::npos);
  const auto first = nlohmann::json::parse(
      read_text(folder / "sft.jsonl").substr(0, read_text(folder / "sft.jsonl").find('\n')));
  const std::string asked = first["messages"][0]["content"];
  EXPECT_NE(asked.find("\n[3] "), std::string::npos) << asked;
  EXPECT_EQ(asked.find("\n[4] "), std::string::npos) << asked;
  EXPECT_EQ(rows("aggregation_prompts", "rl.jsonl").exit_code, 0);
  EXPECT_NE(environment({"show", folder / "rl.jsonl", "--count", "20"}).output.find(asked), std::string::npos)
      << "the same candidates, as an environment";
  refused({"export", "sort:3", "--tail", "9"}, "--form messages shows no candidates", 2);
  refused({"export", "sort:3", "--form", "aggregation", "--right", "2"}, "--right", 2);
  refused({"export", "sort:3", "--form", "aggregation", "--compaction", "zip"}, "hybrid");
  refused({"export", "sort:3", "--form", "agregation"}, "agregation");
  refused({"export", "sort:3", "--form", "aggregation", "--reply", "verdict"}, "choice, solution");
  refused({"export", "sort:3", "--form", "aggregation_prompts", "--reply", "solution"}, "has no replies", 2);
  const std::string solved = environment({"export", "sort:3", "--rows", "1", "--form", "aggregation",
                                          "--reply", "solution", "--styles", "checked"})
                                 .output;
  const auto whole = nlohmann::json::parse(solved);
  const auto alone =
      nlohmann::json::parse(environment({"export", "sort:3", "--rows", "1", "--styles", "checked"}).output);
  EXPECT_EQ(whole["messages"][1], alone["messages"][1]) << "the reply is that to the problem alone";
  EXPECT_NE(whole["messages"][0], alone["messages"][0]);
}

}  // namespace ingot::test::environment_command_runs_test
