// The HTML report from a synthetic run: complete, self-contained, safe with hostile text; figures with odd
// values.
#include "report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/philox.h"
#include "base/progress.h"
#include "report/plot.h"
#include "report/synthetic_run.h"
#include "report/table.h"
#include "support/support.h"

namespace ingot::report_test {

using test::synthetic_row;
using test::synthetic_run;

TEST(Table, PrintsTextHtmlAndJson) {
  Table table({words("op", "op"),
               {.title = "time", .format = "{:.1f} ms", .scale = 1e3, .spread = true, .field = "seconds"},
               {.field = "bytes"},
               percent("of P", "forward")},
              "ops");
  table.add({"<head>", Spread{0.1, 0.09, 0.104}, 7, 0.5});
  table.add({"add", {}, 12, {}});
  EXPECT_EQ(table.text(),
            "ops\n"
            "                         | forward\n"
            "op          time  spread |  of P\n"
            "<head>  100.0 ms    14 % | 50.0%\n"
            "add                      |\n");
  EXPECT_EQ(table.json().dump(),
            R"([{"op":"<head>","seconds":{"median":0.1,"least":0.09,"most":0.104},"bytes":7},)"
            R"({"op":"add","bytes":12}])");
  EXPECT_NE(table.html().find("<td>&lt;head&gt;</td><td class=num>100.0 ms</td>"), std::string::npos);
  EXPECT_EQ(text_of({Table({words("op")}), table}), "\n" + table.text()) << "an empty table prints nothing";
}

TEST(Report, HoldsEverySectionAndNeedsNoNetwork) {
  const std::string html = render_report(synthetic_run(2000));
  for (const char* part : {"Loss",
                           "validation: fiction",
                           "validation: fiction, all tokens",
                           "bits per byte",
                           "Learning rate",
                           "Gradient norm",
                           "Speed",
                           "of roofline",
                           "Balance of the experts",
                           "layer 3",
                           "Time by operation",
                           "grouped linear",
                           "17,731,584",
                           "checkpoint pause",
                           "84 ms",
                           "harbour",
                           "[optimizer]",
                           "<svg",
                           "</html>",
                           "finished, step 2,000 of 2,000",
                           "all 21,328 tokens, step 2,000"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* outside : {"src=", "href=", "url(h", "url('", "url(\"", "@import", "https:"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  EXPECT_LT(html.size(), 1500000u);
}

TEST(Report, SaysWhatIsShownWhileARunTrains) {
  ReportData data = synthetic_run(300);
  data.record.set("plan", "steps", int64_t{1400});
  EXPECT_NE(render_report(data).find("stopped, step 300 of 1,400"), std::string::npos);
  EXPECT_EQ(render_report(data).find("data-live="), std::string::npos);
  data.running = true;
  const std::string html = render_report(data);
  EXPECT_NE(html.find("running, step 300 of 1,400, 2 m 12 s left"), std::string::npos) << "0.12 s a step";
  EXPECT_NE(html.find("data-live="), std::string::npos);
  EXPECT_NE(html.find("validation of fiction, 16,384 tokens, step 200"), std::string::npos)
      << "a part, so not all";
}

TEST(Report, DrawsEveryMetric) {
  ReportData data = synthetic_run(30);
  for (MetricRow& row : data.rows) {
    row.set("log_z", 8.0);
    row.set("update_ratio/matrix", 0.01);
    row.set("update_ratio/vector", 0.02);
    for (int layer = 0; layer < 12; ++layer) row.set(fmt::format("residual/{}/rms", layer), layer);
  }
  const std::string html = render_report(data);
  for (const char* part : {"<b>log_z</b>", "<b>Update ratio</b>", "<i class='c0'></i>matrix",
                           "<b>Residual stream</b>", "mean of 12", "lowest", "highest"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(Report, ComparesRuns) {
  std::vector<ReportData> runs{synthetic_run(400), synthetic_run(200)};
  runs[0].label = "runs/a", runs[1].label = "runs/b";
  runs[1].record.set_config(parse_toml("seed = 2\nname = \"quickstart\"\n[optimizer]\nlr = 0.003\n", "t"));
  const std::string html = render_comparison(runs);
  for (const char* part : {"2 runs", "runs/a: fiction", "runs/b: fiction", "Settings that differ",
                           "<td>seed</td>", "finished, step 400 of 400", "training loss", "harbour"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  EXPECT_EQ(html.find("<td>optimizer.lr</td>"), std::string::npos) << "it is equal";
}

TEST(Report, StaysSmallForLongRuns) {
  ReportData data;
  for (int64_t step = 1; step <= 50000; ++step) {
    data.rows.emplace_back();
    data.rows.back().step = step;
    data.rows.back().set("loss", std::sin(static_cast<double>(step)));
    data.rows.back().set("router/0/load", std::vector<double>(256, 1.0 / 256));
  }
  EXPECT_LT(render_report(data).size(), 400000u);
}

TEST(Report, EscapesTextAndSurvivesOddValues) {
  const std::string attack = "</script><script>alert('x')</script>\"'&";
  ReportData data;
  data.record.set("run", "name", attack);
  data.record.set(attack, attack, attack);
  data.samples.push_back({1, attack, attack});
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {1.0, std::nan(""), inf, -inf, 0.0, -1e300, 1e300}) {
    MetricRow row;
    row.step = static_cast<int64_t>(data.rows.size());
    for (const char* name :
         {"loss", "lr", "grad_norm", "tokens", "step_seconds", "router/0/entropy", "time/x"})
      row.set(name, value);
    row.set("val/" + attack + "/loss", value);
    row.set("router/" + attack + "/load", std::vector<double>(data.rows.size(), value));
    data.rows.push_back(row);
  }
  const std::string html = render_report(data);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("alert('x')"), std::string::npos);
  EXPECT_NE(render_report(ReportData{}).find("</html>"), std::string::npos);
}

TEST(Report, WritesIntoTheRunFolder) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  EXPECT_THROW(write_report(fs, folder.path(), false), Error);
  const ReportData data = synthetic_run(20);
  write_run_record(fs, folder.path(), data.record);
  MetricsWriter writer(fs, folder / run_files::kMetrics, 0);
  for (const auto& row : data.rows) writer.write(row);
  for (const auto& sample : data.samples) append_sample(fs, folder / run_files::kSamples, sample);
  write_report(fs, folder.path(), false);
  EXPECT_NE(fs.read(folder / run_files::kReport).find("harbour"), std::string::npos);
}

// Two ranks, two steps: a rank's mean step is 4 s of products and 1 s of rest; linear has 3 of 5 s, of all
// ranks and steps 12.
TEST(Report, ShowsAProfileThatTheRunFolderHolds) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  write_run_record(fs, folder.path(), synthetic_run(20).record);
  MetricsWriter(fs, folder / run_files::kMetrics, 0).write(synthetic_row(1, 20));
  write_report(fs, folder.path(), false);
  EXPECT_EQ(fs.read(folder / run_files::kReport).find("A step by"), std::string::npos);
  write_file_atomically(fs, folder / run_files::kProfile,
                        R"({"batch": 8, "length": 32, "precision": "bf16", "steps": 2,
    "ranks": [{"times": {"products": 3, "rest": 1}}, {"times": {"products": 5, "rest": 1}}],
    "cells": [{"op": "linear", "segment": "mlp", "seconds": 8},
               {"op": "linear", "segment": "attention", "seconds": 4},
              {"op": "adamw<", "segment": "", "seconds": 2}]})");
  write_report(fs, folder.path(), false);
  const std::string html = fs.read(folder / run_files::kReport);
  for (const char* part : {"A step by purpose", "8 x 32 tokens, bf16, mean of 2 steps and 2 ranks",
                           "products", "80.0 % · 4.0 s", "20.0 % · 1.0 s", "A step by op", "60.0 % · 3.0 s",
                           "adamw&lt;", "10.0 % · ", "A step by segment", "40.0 % · 2.0 s", "no segment"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  write_file_atomically(fs, folder / run_files::kProfile, R"({"steps": 2})");
  EXPECT_THROW(write_report(fs, folder.path(), false), Error) << "damaged";
}

TEST(Report, NumbersForPeople) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.0003), "0.0003");
  EXPECT_EQ(short_number(0.00003), "3e-5");
  EXPECT_EQ(short_number(3.14159), "3.142");
  EXPECT_EQ(short_number(2000), "2,000");
  EXPECT_EQ(short_number(123456), "123.5k");
  EXPECT_EQ(short_number(-1e300), "-1e+300");
  EXPECT_EQ(group_digits(8840488784), "8,840,488,784");
  EXPECT_EQ(group_digits(-1234), "-1,234");
  EXPECT_EQ(group_digits(-123), "-123");
}

}  // namespace ingot::report_test
