// The report of a run of post-training: bars of its phases, figures of reinforcement learning, accuracy over
// decoded tokens; the file of results that the last comes from.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file_system.h"
#include "report/post_run.h"
#include "report/reason_plots.h"
#include "support/support.h"

namespace ingot::reason_report_test {

using test::post_run;
using test::reason_result;

size_t count_in(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ReasonReport, HasABarForEachPhaseAndTask) {
  const ReportData data = post_run();
  const auto ends = phase_ends(data.record.config_toml());
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[2].name, "reason <rl>");
  EXPECT_EQ(ends[1].last_step, 40);
  const std::string bars = phase_bars(data.rows, ends);
  EXPECT_EQ(count_in(bars, "<figure"), 2u) << "sort and chain";
  EXPECT_EQ(count_in(bars, "<i style"), 6u);
  // The last value of each phase with its error, as shares of one.
  for (const char* part : {"10.0 ± 1.0 %", "35.0 ± 2.0 %", "62.5 ± 2.5 %", "width:62.50%",
                           "left:60.00%;width:5.00%", "reason &lt;rl&gt;", "sort@3-8"})
    EXPECT_NE(bars.find(part), std::string::npos) << part << "\n" << bars;
  EXPECT_EQ(bars.find("61.0"), std::string::npos) << "an earlier value of the phase";
  EXPECT_EQ(phase_bars(data.rows, std::vector<PhaseEnd>{{"all", 60}}), "")
      << "one phase has nothing beside it";
  EXPECT_TRUE(phase_ends("").empty());
  EXPECT_TRUE(phase_ends("phases = [{name = \"x\"}]").empty());
  EXPECT_TRUE(phase_ends("[[[").empty());
}

TEST(ReasonReport, ShowsTheCourseOfReinforcementLearning) {
  ReportData data = post_run();
  const auto section = [&] {
    const LabelledRows rows{"", data.rows};
    return rl_section({&rows, 1});
  };
  std::string html = section();
  for (const char* part : {"<b>Reward</b>", "<b>Difficulty</b>", "<b>Length of replies</b>", "<b>Entropy</b>",
                           "<b>Candidates</b>", "0 of 20,000 log-probabilities", "exactly on-policy"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (auto& [name, value] : data.rows.back().scalars)
    if (name == "rl/unequal") value = 3;
  html = section();
  EXPECT_NE(html.find("3 of 20,000 log-probabilities"), std::string::npos);
  EXPECT_EQ(html.find("exactly on-policy"), std::string::npos);
  EXPECT_TRUE(has_rl_figure("rl/reward/sort") && has_rl_figure("rl/kl"));
  EXPECT_FALSE(has_rl_figure("rl/compared") || has_rl_figure("rl/rewards") || has_rl_figure("loss"));
  const std::string page = render_report(data);
  EXPECT_EQ(count_in(page, "<b>Reward</b>"), 1u) << "once, in its own section";
  EXPECT_NE(page.find("<b>rl/fill</b>"), std::string::npos) << "the other metrics of rl have figures too";
  const LabelledRows text{"", std::vector<MetricRow>(data.rows.begin(), data.rows.begin() + 20)};
  EXPECT_EQ(rl_section({&text, 1}), "");
}

TEST(ReasonReport, DrawsAccuracyOverDecodedTokens) {
  const std::string html =
      reason_section({reason_result("sort:6-8", "trained", 0.5), reason_result("sort:6-8", "untrained", 0.3),
                      reason_result("chain:5", "trained", 0.4)});
  EXPECT_EQ(count_in(html, "data-plot"), 2u);
  // 16 samples of 40 tokens: single is at log2(40), majority at log2(640).
  for (const char* part : {"rsa 16 4 2, trained", "rsa 16 4 2, untrained", "single and majority, trained",
                           "majority of 16", "5.3219", "9.3219", "50.0 ± 1.5", "180 of 200",
                           "% right over tokens decoded", "&quot;log2&quot;:&quot;tokens&quot;"})
    EXPECT_NE(html.find(part), std::string::npos) << part << "\n" << html;
  EXPECT_EQ(reason_section({}), "");
}

TEST(ReasonResults, ReadBackAndReplaceTheirOwn) {
  const test::TempDir folder;
  FileSystem& fs = real_file_system();
  EXPECT_THROW(record_reason_result(fs, folder.path(), reason_result("sort:6", "a", 0.5)), Error) << "no run";
  EXPECT_TRUE(read_reason_results(fs, folder.path()).empty());
  write_run_record(fs, folder.path(), post_run().record);
  for (const double right : {0.5, 0.25})
    record_reason_result(fs, folder.path(), reason_result("sort:6", "a", right));
  record_reason_result(fs, folder.path(), reason_result("sort:6", "b", 0.75));
  const std::string path = folder / run_files::kReasoning;
  test::write_text(path, test::read_text(path) + "{\"name\": 3}\nnothing\n{\"name\": \"torn");
  const std::vector<ReasonResult> read = read_reason_results(fs, folder.path());
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].rounds[0].right, 0.25) << "the later one of a";
  EXPECT_EQ(to_json_line(read[1]), to_json_line(reason_result("sort:6", "b", 0.75)));
  test::write_text(folder / "metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n");
  write_report(fs, folder.path(), false);  // damaged lines do not stop it
  EXPECT_EQ(read_report_data(fs, folder.path()).reasoning.size(), 2u);
}

TEST(ReasonResults, RefuseWhatTheyHaveNotWritten) {
  const std::string good = to_json_line(reason_result("sort:6", "a", 0.5));
  EXPECT_NO_THROW(parse_reason_result(good, "here"));
  const auto with = [&](const std::string& part, const std::string& other) {
    std::string text = good;
    const size_t at = text.find(part);
    EXPECT_NE(at, text.npos) << part;
    return text.replace(at, part.size(), other);
  };
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        with("\"count\":200", "\"count\":0"), with("\"count\":200", "\"count\":1.5"),
        with("\"count\":200", "\"count\":1e300"), with("\"tokens\":640.0", "\"tokens\":-1"),
        with("\"tokens\":640.0", "\"tokens\":\"nan\""), with("\"rounds\":[", "\"rounds\":[[],"),
        with("\"name\":\"a\"", "\"name\":[]"), good.substr(0, good.find("\"rounds\"")) + "\"rounds\":[]}",
        std::string(100000, '[')})
    EXPECT_THROW(parse_reason_result(bad, "here"), Error) << bad.substr(0, 200);
  // Cut and mutated lines are read or refused, never more.
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_THROW(parse_reason_result(good.substr(0, i), "here"), Error) << i;
    std::string other = good;
    other[i] = static_cast<char>(other[i] ^ 5);
    try {
      parse_reason_result(other, "here");
    } catch (const Error&) {
    }
  }
}

}  // namespace ingot::reason_report_test
