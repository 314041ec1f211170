// Rule files: what the language says, what is refused and with which words, and that no bytes crash it.
#include "guard/rules.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/philox.h"
#include "report/failure_report.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::rules_test {

using namespace guard;

int64_t no_counts(const std::string&, double) {
  return 0;
}

bool holds(const std::string& when, const Facts& facts) {
  return Expression::parse(when).holds(facts, no_counts);
}

std::string refusal(const std::string& when) {
  try {
    const std::string never = Expression::parse(when).contradiction();
    return never.empty() ? "" : "never: " + never;
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Expression, ComparesFactsWithUnits) {
  Facts f;
  f.set(Fact::job, "running");
  f.set(Fact::silence, 90);
  f.set(Fact::disk_free, 0.015);
  f.set(Fact::nodes, 2);
  f.add_log("node-3: Completion Queue Error 12");
  EXPECT_TRUE(holds("job == \"running\" and silence > 1.4min and silence <= 90s", f));
  EXPECT_TRUE(holds("disk_free < 2% or exit_code == 0", f));
  EXPECT_FALSE(holds("not (disk_free < 2%)", f));
  EXPECT_TRUE(holds("log(\"nothing|completion queue\") and nodes", f));
  EXPECT_FALSE(holds("log(\"cqe\")", f));
  EXPECT_TRUE(holds("spike_steps == 0 and job != \"ended\"", f));
  EXPECT_FALSE(holds("nodes < 2 or nodes > 2 and job == \"running\"", f));  // and binds closer
}

TEST(Expression, CountsRulesInWindows) {
  const Expression e = Expression::parse("count(\"hang\", 2h) >= 3");
  EXPECT_TRUE(e.holds({}, [](const std::string& rule, double seconds) {
    return rule == "hang" && seconds == 7200 ? int64_t{3} : int64_t{0};
  }));
  EXPECT_EQ(e.counted(), std::vector<std::string>{"hang"});
}

TEST(Expression, RefusesWithPlaceAndNearestName) {
  EXPECT_EQ(refusal("silense > 3"),
            "at character 1: no fact is called 'silense'; did you mean 'silence'?, found 'silense > 3'");
  EXPECT_NE(refusal("job == \"runing\"").find("'job' is never \"runing\""), std::string::npos);
  EXPECT_NE(refusal("silence > ").find("at character 11"), std::string::npos);
  EXPECT_NE(refusal("silence > 3 silence").find("expected 'and', 'or' or the end"), std::string::npos);
  EXPECT_NE(refusal("silence > 3parsecs"), "");
  EXPECT_NE(refusal("job > \"running\"").find("== or !="), std::string::npos);
  EXPECT_NE(refusal("(silence > 3").find("')'"), std::string::npos);
  EXPECT_NE(refusal("log(\"\")"), "");
  EXPECT_NE(refusal("count(\"a\", 0s)"), "");
  EXPECT_NE(refusal(std::string(3000, '(')), "");
  EXPECT_NE(refusal(std::string(1000, '(')).find("too deep"), std::string::npos);
}

TEST(Expression, FindsWhatCanNeverHold) {
  for (const char* never :
       {"nodes == 1 and nodes == 2", "silence > 3min and silence < 60s", "silence < 0", "disk_free > 110%",
        "job == \"ended\" and job == \"running\"", "0", "1 > 2", "nodes == 1 and nodes != 1",
        "silence > 5 and silence <= 5", "(nodes == 1 and nodes == 2) or silence < 0",
        "silence > 60s and not silence > 30s", "not (silence >= 0 or nodes > 3)", "not 1",
        "not (job != \"ended\" or nodes == 2) and job == \"running\"", "nodes and not nodes",
        "not (silence >= 0s)", "60s < silence and silence < 30s",
        "(nodes == 1 or nodes == 2) and not (nodes == 1 or nodes == 2)",
        "(nodes == 1 or nodes == 2) and nodes > 4"})
    EXPECT_EQ(refusal(never).substr(0, 6), "never:") << never;
  for (const char* sometimes :
       {"nodes == 1 or nodes == 2", "silence > 3s and silence < 60s", "nodes >= 5 and nodes <= 5",
        "silence == 0", "not job == \"ended\"", "(nodes == 1 and nodes == 2) or silence > 0",
        "not (nodes == 1 and nodes == 2)", "silence > 60s and not silence > 90s", "not nodes", "not 0",
        "not (job == \"ended\" and nodes == 2) and job == \"ended\"", "not not nodes == 1"})
    EXPECT_EQ(refusal(sometimes), "") << sometimes;
}

std::string rules_refusal(const std::string& text) {
  try {
    parse_rules(text, "rules.toml");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(RuleFile, IsRefusedByLine) {
  const std::string text = R"([[rules]]
name = "a"
when = 'silence > 60s'
act = ["restart"]
[[rules]]
name = "a"
when = 'nodes == 1 and nodes == 2'
act = ["explode"]
[[rules]]
name = "b"
when = 'nodes > 3'
act = ["exclude_failing", "restart"]
limit = "often"
[[rules]]
name = "c"
when = 'nodes > 4'
act = ["ask", "alert"]
sure = "probable"
[[rules]]
name = "d"
when = 'count("nobody", 1h) > 1'
act = ["stop"]
sure = "unknown"
limits = 3
)";
  const std::string refused = rules_refusal(text);
  EXPECT_NE(refused.find("rules.toml:8"), std::string::npos) << refused;
  EXPECT_NE(refused.find("limits"), std::string::npos) << refused;
  // What the fields themselves say comes once their types are right.
  std::string typed = text;
  typed.replace(typed.find("\"explode\""), 9, "\"stop\"");
  typed.erase(typed.find("limits = 3\n"));
  const std::string found = rules_refusal(typed);
  for (const char* part :
       {"no limit", "can never match", "two rules are called 'a'", "needs 'burn_in' before it",
        "expected a number of times", "'ask' comes last", "a probable sign states its repeats",
        "'nobody', which is no rule", "unknown cause"})
    EXPECT_NE(found.find(part), std::string::npos) << part << " in\n" << found;
}

std::string two_rules(const std::string& first, const std::string& second) {
  return fmt::format(
      "[[rules]]\nname = 'one'\nwhen = '{}'\nact = ['ask']\n"
      "[[rules]]\nname = 'two'\nwhen = '{}'\nact = ['ask']\n",
      first, second);
}

TEST(RuleFile, ARuleThatAnEarlierOneCoversIsNeverAsked) {
  for (const auto& [first, second] : {std::pair("nodes > 1", "nodes > 1"),
                                      {"silence > 60s", "silence > 90s and nodes == 1"},
                                      {"nodes > 1 or silence > 60s", "silence >= 61s"},
                                      {"job != \"ended\"", "job == \"running\""}})
    EXPECT_NE(rules_refusal(two_rules(first, second)).find("'two' is never asked: 'one' before it"),
              std::string::npos)
        << first << ", then " << second;
  for (const auto& [first, second] : {std::pair("silence > 90s", "silence > 60s"),
                                      {"silence > 60s and log(\"x\")", "silence > 90s"},
                                      {"count(\"two\", 1h) > 2", "nodes > 1"},
                                      {"nodes > 1", "silence > 60s"}})
    EXPECT_EQ(rules_refusal(two_rules(first, second)), "") << first << ", then " << second;
}

TEST(Check, SaysWhatEachRuleWouldDo) {
  const TempDir folder;
  const std::string rules = folder / "rules.toml", job = folder / "job.toml";
  write_text(rules, R"([[rules]]
name = "bad data"
when = 'job == "ended" and failure == "diverged"'
act = ["save_evidence", "skip"]
limit = "2 in 24h per node"
[[rules]]
name = "links"
when = 'link_errors > 0'
sure = "probable"
repeats = "2 in 5min"
act = ["stop", "restart"]
limit = "1 in 1h"
)");
  const auto check = [](const std::string& file) {
    return run_process({INGOT_BINARY, "guard", "check", file});
  };
  const ProcessResult of_rules = check(rules);
  EXPECT_EQ(of_rules.exit_code, 0) << of_rules.output;
  for (const char* part :
       {"1. 'bad data'", "when   job == \"ended\" and failure == \"diverged\"", "failure: why it ended",
        "acts   at once: save_evidence, skip", "limit  2 in 86400 s per node; beyond it: save_evidence, ask",
        "acts   when its sign has appeared 2 in 300 s: stop, restart", "2 rules, all can match"})
    EXPECT_NE(of_rules.output.find(part), std::string::npos) << part << " in\n" << of_rules.output;
  EXPECT_EQ(of_rules.output.find("a person instead"), std::string::npos) << "rules alone have no scope";
  const std::string start = fmt::format("run = \"{}\"\nrules = \"{}\"\n", folder / "run", rules);
  write_text(job, start + "command = [\"true\"]\n[scope]\nnodes_per_day = 5\n");
  const ProcessResult of_job = check(job);
  EXPECT_EQ(of_job.exit_code, 0) << of_job.output;
  EXPECT_NE(of_job.output.find("asks   a person instead: scope.alone does not have skip"), std::string::npos)
      << of_job.output;
  EXPECT_NE(of_job.output.find("at most 5 nodes in 24 h"), std::string::npos) << of_job.output;
  write_text(job, start + "command = [\"no-such-program\"]\n");
  const ProcessResult missing = check(job);
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.output.find("there is no program 'no-such-program'"), std::string::npos)
      << missing.output;
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "it only looks";
  write_text(rules, read_text(rules) +
                        "[[rules]]\nname = 'never'\nwhen = 'nodes > 2 and not nodes > 1'\nact = ['ask']\n");
  for (const std::string& file : {rules, job}) {
    const ProcessResult never = check(file);
    EXPECT_EQ(never.exit_code, 2);
    EXPECT_NE(never.output.find("rules.toml:15"), std::string::npos) << never.output;
    EXPECT_NE(never.output.find("can never match: 'nodes' can have no such value"), std::string::npos)
        << never.output;
  }
  EXPECT_EQ(check(folder / "nothing.toml").exit_code, 2);
}

TEST(RuleFile, ShippedRulesLoad) {
  EXPECT_GT(load_rules(INGOT_SOURCE_DIR "/recipes/guard-rules.toml").size(), 25U);
}

TEST(Times, ReadWindows) {
  const Times t = parse_times("3 in 24h per node");
  EXPECT_EQ(t.count, 3);
  EXPECT_EQ(t.seconds, 86'400);
  EXPECT_TRUE(t.per_node);
  for (const char* bad : {"", "3", "3 in", "0 in 1h", "-1 in 1h", "3 in 0s", "3 in 1h per rank", "x in 1h"})
    EXPECT_THROW(parse_times(bad), Error) << bad;
}

/// Runs `parse` on every file of a corpus, whole, cut off at every 7th byte and with bytes changed.
template <class Parse>
int64_t replay(const std::string& corpus, const Parse& parse) {
  int64_t files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::string(INGOT_SOURCE_DIR "/tests/fuzz/corpus/") + corpus)) {
    const std::string text = read_text(file.path().string());
    parse(text);
    const Random random(11, RandomPurpose::test);
    for (size_t i = 0; i < text.size(); i += 7) {
      parse(text.substr(0, i));
      std::string changed = text;
      changed[i] = static_cast<char>(random.below(i, 256));
      parse(changed);
    }
    ++files;
  }
  return files;
}

TEST(Corpus, RulesGiveRulesOrAnError) {
  EXPECT_GE(replay("guard_rules",
                   [](const std::string& text) {
                     try {
                       parse_rules(text, "fuzz");
                     } catch (const Error&) {
                     }
                     try {
                       Expression::parse(text).contradiction();
                     } catch (const Error&) {
                     }
                   }),
            3);
}

TEST(Corpus, FailureReportsAreReadOrIgnored) {
  EXPECT_GE(replay("guard_facts",
                   [](const std::string& text) {
                     FailureReport::parse(text, 1);
                     try {
                       Facts::parse(text);
                     } catch (const Error&) {
                     }
                   }),
            2);
}

}  // namespace ingot::test::rules_test
