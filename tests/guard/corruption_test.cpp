// Silent corruption under a guard with real processes: a bit changes in one rank, the run says whose, the
// rule 'silent corruption' goes back to where all copies were equal, and the run ends with the clean one's
// bits.
#include <gtest/gtest.h>

#include "guard/journal.h"
#include "guard/run_reader.h"
#include "support/digest_run.h"
#include "support/tiny_run.h"
#include "train/digest_lines.h"

namespace ingot::test::corruption_test {
namespace {

using namespace guard;

/// But "blob:trainer", which remembers the return.
std::map<std::string, std::string> tensors_of(const std::string& run) {
  auto content = checkpoint_content(run);
  std::erase_if(content, [](const auto& c) { return c.first == "blob:trainer"; });
  return content;
}

TEST(GuardCorruption, ARunWithAChangedBitGoesBackAndEndsAsTheCleanOne) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(2000));
  const auto recipe = [&](const std::string& run) {
    write_text(folder / (run + ".toml"), digest_recipe(folder.path(), run) + "replay_every = 1\n");
    return folder / (run + ".toml");
  };
  for (const int ranks : {2, 3}) {
    const std::string clean = fmt::format("clean-{}", ranks);
    run_with_flip(recipe(clean), {}, ranks, {});
    for (const FlipPlace place :
         {FlipPlace::weight, FlipPlace::gradient, FlipPlace::moment, FlipPlace::activation}) {
      const std::string run = fmt::format("{}-{}", name_of(place), ranks);
      SCOPED_TRACE(run);
      const std::string file = recipe(run), job = folder / (run + "-job.toml");
      write_text(
          job,
          fmt::format(
              "run = \"{}\"\nrules = \"{}/recipes/guard-rules.toml\"\npoll = 0.02\nburn_in = [\"true\"]\n"
              "command = [\"{}\", \"{}\", \"{}\", \"{}\", \"1\", \"7\", \"5\"]\n",
              folder / run, INGOT_SOURCE_DIR, INGOT_FLIP_PROGRAM, file, ranks, name_of(place)));
      const ProcessResult r = run_process({INGOT_BINARY, "guard", job});
      ASSERT_EQ(r.exit_code, 0) << r.output;
      std::vector<Entry> decided;
      for (const Entry& e : FileStore(real_file_system(), folder / (run + "/guard")).entries())
        if (e.event == guard::Event::decided) decided.push_back(e);
      ASSERT_EQ(decided.size(), 2U) << r.output;
      EXPECT_EQ(decided[1].rule, "silent corruption");
      ASSERT_EQ(decided[1].nodes.size(), 1U) << r.output;
      const std::string host = decided[1].nodes[0];
      const auto named = [&](int rank) {
        return decided[1].reason.find(fmt::format("rank {} on {}", rank, host)) != std::string::npos;
      };
      EXPECT_TRUE(named(1)) << decided[1].reason;
      EXPECT_EQ(named(0), ranks == 2) << "of two both are suspects: " << decided[1].reason;
      EXPECT_FALSE(named(2)) << decided[1].reason;
      EXPECT_EQ(decided[1].value, 7) << "the copies were equal at step 6";
      // It went back to step 4, or to the end of the first phase where that save was complete before the end.
      const RecordedDigests d = read_digests(real_file_system(), folder / (run + "/" + kDigestsFile));
      ASSERT_EQ(d.starts.size(), 2U);
      EXPECT_TRUE(d.starts[1].step == 4 || d.starts[1].step == 5) << d.starts[1].step;
      EXPECT_EQ(d.steps, read_digests(real_file_system(), folder / (clean + "/" + kDigestsFile)).steps);
      EXPECT_EQ(tensors_of(folder / run), tensors_of(folder / clean));
      EXPECT_EQ(losses(folder / run), losses(folder / clean));
      const ProcessResult again = run_process({INGOT_BINARY, "guard", "explain", job});
      EXPECT_EQ(again.exit_code, 0) << again.output;
    }
  }
}

TEST(GuardCorruption, AnObservationHasTheSuspectsOfThisStartsFailure) {
  const TempDir folder;
  RunReader reader(folder.path());
  const auto seen = [&](const std::string& text, int64_t start = 4) {
    write_text(folder / "failure.json", text);
    Observation o;
    reader.read(o, start, folder / "none.log");
    return o;
  };
  const std::string good =
      R"({"format": 1, "start": 4, "kind": "mismatch", "rank": 2, "host": "b", "step": 20, )"
      R"("trouble_step": 17, )"
      R"("copies": 3, "suspects": [{"rank": 2, "host": "b"}, {"rank": 5, "host": "c"}]})";
  const Observation o = seen(good);
  EXPECT_EQ(o.minority, (std::vector<Suspect>{{"b", 2}, {"c", 5}}));
  EXPECT_EQ(o.copies, 3);
  EXPECT_EQ(o.agreed_step, 16);
  EXPECT_EQ(o.failure->node, "b");
  EXPECT_TRUE(seen(good, 5).minority.empty()) << "of another start";
  EXPECT_EQ(seen(good, 5).agreed_step, -1);
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_TRUE(seen(good.substr(0, cut)).minority.empty());
  EXPECT_TRUE(
      seen(R"({"format": 1, "start": 4, "kind": "bug", "suspects": [{"rank": 1}]})").minority.empty());
  EXPECT_TRUE(seen(R"({"format": 1, "start": 4, "kind": "mismatch", "suspects": 7})").minority.empty());
  EXPECT_EQ(
      seen(R"({"format": 1, "start": 4, "kind": "mismatch", "suspects": [7, {}], "copies": -3})").copies, 0);
}

}  // namespace
}  // namespace ingot::test::corruption_test
