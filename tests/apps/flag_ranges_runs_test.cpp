// Numbers of flags and environment variables: each has a range, and what lies outside is refused before any
// work.
#include <gtest/gtest.h>

#include <sstream>

#include "base/clock.h"
#include "support/clone.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::flag_ranges_runs_test {
namespace {

void refuses(std::vector<std::string> arguments, const std::string& part,
             const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), INGOT_BINARY);
  const double begin = monotonic_seconds();
  const ProcessResult r = run_process(arguments, environment);
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  EXPECT_TRUE(r.exit_code > 0) << line << r.output;
  EXPECT_EQ(r.signal, 0) << line;
  EXPECT_EQ(r.output.find("internal error"), std::string::npos) << line << r.output;
  EXPECT_NE(r.output.find(part), std::string::npos) << line << r.output;
  EXPECT_LT(monotonic_seconds() - begin, 10) << line;
}

TEST(FlagRanges, EveryFlagWithANumberRefusesWhatIsOutside) {
  const std::pair<const char*, std::vector<std::string>> commands[] = {
      {"generate", {"--max-tokens", "--temperature", "--top-p", "--top-k", "--min-p"}},
      {"chat", {"--max-tokens", "--temperature"}},
      {"finetune", {"--epochs", "--lr", "--batch", "--sequence", "--validation", "--lora", "--lora-alpha"}},
      {"average", {"--weights", "--ema", "--last"}},
      {"upcycle", {"--granularity", "--expansion", "--top-k", "--seed"}},
      {"eval", {"--sequence"}},
      {"launch", {"-n"}}};
  for (const auto& [command, flags] : commands)
    for (const std::string& flag : flags)
      for (const char* value : {"-1", "nan", "1e300", "x"}) refuses({command, flag, value}, "found");
}

TEST(FlagRanges, EveryFlagWithANumberHasOne) {
  int numbers = 0;
  for (const std::string& command : all_commands()) {
    std::vector<std::string> words = {INGOT_BINARY};
    std::istringstream names(command);
    for (std::string word; names >> word;) words.push_back(word);
    words.push_back("--help");
    std::istringstream help(run_process(words).output);
    for (std::string line; std::getline(help, line);)
      for (const char* type : {" INT", " UINT", " FLOAT"})
        if (const size_t at = line.find(type); line.starts_with("  -") && at != std::string::npos) {
          ++numbers;
          EXPECT_EQ(line[at + std::string(type).size()], ':') << command << ": " << line;
        }
  }
  EXPECT_GT(numbers, 50);
}

TEST(FlagRanges, MessagesSayTheRange) {
  refuses({"launch", "-n", "0", "--", "run", "x"}, "must be at least 1, found 0");
  refuses({"bench", "comm", "--ranks=999999"}, "are threads, at most 1024");
  refuses({"finetune", "m", "d", "--lora", "0"}, "must be at least 1, found 0");
  refuses({"finetune", "m", "d", "--epochs", "1e17"}, "must be at most 1000000, found 1e+17");
  refuses({"average", "a", "b", "-o", "x", "--weights", "1e308,1e308"}, "must be at most 1000000000");
}

TEST(FlagRanges, ThreadsOfTheEnvironment) {
  const TempDir dir;
  write_text(dir / "a.txt", "text");
  write_text(dir / "recipe.toml",
             "[model]\npreset = \"llama-small\"\nvocab = 300\n[[data.sources]]\nname = \"a\"\npath = \"" +
                 (dir / "a.txt") + "\"\n");
  for (const char* value : {"x", "-3", "0", "99999", "2.5", "4 "})
    refuses({"run", dir / "recipe.toml", "--plan"}, "INGOT_THREADS must be",
            {std::string("INGOT_THREADS=") + value});
}

}  // namespace
}  // namespace ingot::test::flag_ranges_runs_test
