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
#include "report/svg_plot.h"
#include "report/table.h"
#include "support/support.h"

namespace ingot::report_test {

MetricRow synthetic_row(int64_t step, int64_t steps) {
  const Random random(5, RandomPurpose::test, static_cast<uint64_t>(step));
  uint64_t at = 0;
  const auto noise = [&] { return random.normal(at++); };
  const double t = static_cast<double>(step) / static_cast<double>(steps);
  MetricRow row;
  row.step = step;
  row.wall = 1.8e9 + 0.12 * static_cast<double>(step);
  row.set("loss", 1.9 + 6.1 * std::exp(-t * 14) + 0.9 * std::exp(-t * 2) + 0.06 * noise());
  row.set("lr", 0.003 * std::min(1.0, t / 0.05) * (t < 0.8 ? 1 : (1 - t) / 0.2));
  row.set("grad_norm", 0.5 + 3 * std::exp(-t * 20) + 0.08 * std::abs(noise()) + (step == 1200 ? 4 : 0));
  row.set("tokens", 8192.0 * static_cast<double>(step));
  row.set("tokens_per_second", 42000 + 900 * noise());
  row.set("percent_of_roofline", 46 + noise());
  row.set("step_seconds", 0.195);
  for (int layer = 0; layer < 4; ++layer) {
    std::vector<double> load(16);
    double sum = 0, entropy = 0;
    for (int expert = 0; expert < 16; ++expert) {
      const double skew = std::sin(expert * 2.4 + layer) * 1.6 * std::exp(-t * 9) + 0.07 * noise();
      sum += load[static_cast<size_t>(expert)] = std::exp(skew);
    }
    for (double& value : load) value /= sum, entropy -= value * std::log(value) / std::log(16.0);
    row.set(fmt::format("router/{}/load", layer), load);
    row.set(fmt::format("router/{}/entropy", layer), entropy);
  }
  const std::pair<const char*, double> times[] = {
      {"grouped linear", 0.071}, {"linear", 0.042}, {"attention", 0.028},
      {"head", 0.021},           {"muon", 0.014},   {"cca", 0.009},
      {"rms norm", 0.004},       {"router", 0.003}, {"adamw", 0.002}};
  for (const auto& [name, seconds] : times) row.set(std::string("time/") + name, seconds);
  if (step % 200 == 0) {
    for (const auto& [source, offset] : {std::pair{"fiction", 0.0}, std::pair{"manuals", -0.35}}) {
      const double loss = 2.02 + offset + 5.5 * std::exp(-t * 13) + 0.8 * std::exp(-t * 2);
      row.set(fmt::format("val/{}/loss", source), loss);
      row.set(fmt::format("val/{}/bits_per_byte", source), loss / std::log(2.0) / 3.9 * 1.6);
    }
    if (step % 500 == 0 || step == steps) {
      row.set("checkpoint/seconds", 0.084);
    }
  }
  return row;
}

ReportData synthetic_run(int64_t steps) {
  ReportData data;
  data.record = RunRecord::of_this_machine("quickstart", 1.8e9);
  data.record.set("run", "status", "finished");
  data.record.set("model", "preset", "zaya1-small");
  data.record.set("model", "parameters", int64_t{17731584});
  data.record.set("model", "active_parameters", int64_t{4218880});
  data.record.set("model", "weights_bytes", int64_t{70926336});
  data.record.set("model", "layers", int64_t{8});
  data.record.set_config(parse_toml("seed = 1\nname = \"quickstart\"\n[optimizer]\nlr = 0.003\n", "t"));
  for (int64_t step = 1; step <= steps; ++step) data.rows.push_back(synthetic_row(step, steps));
  for (int64_t step : {200, 1000, 1500, 2000})
    data.samples.push_back(
        {step, "The old man", " went down to the harbour, where the boats lay\nquiet in the rain."});
  return data;
}

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
  for (const char* part :
       {"Loss", "validation: fiction", "bits per byte", "Learning rate", "Gradient norm", "Speed",
        "of roofline", "Balance of the experts", "layer 3", "Time by operation", "grouped linear",
        "17,731,584", "checkpoint pause", "84 ms", "harbour", "[optimizer]", "<svg", "</html>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* outside : {"src=", "href=", "url(", "@import", "https:"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  EXPECT_LT(html.size(), 1500000u);
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
  EXPECT_THROW(write_report(fs, folder.path()), Error);
  const ReportData data = synthetic_run(20);
  write_run_record(fs, folder.path(), data.record);
  MetricsWriter writer(fs, folder / run_files::kMetrics, 0);
  for (const auto& row : data.rows) writer.write(row);
  for (const auto& sample : data.samples) append_sample(fs, folder / run_files::kSamples, sample);
  write_report(fs, folder.path());
  EXPECT_NE(fs.read(folder / run_files::kReport).find("harbour"), std::string::npos);
}

// Two ranks, two steps: a rank's mean step is 4 s of products and 1 s of rest; linear has 3 of 5 s, of all
// ranks and steps 12.
TEST(Report, ShowsAProfileThatTheRunFolderHolds) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  write_run_record(fs, folder.path(), synthetic_run(20).record);
  MetricsWriter(fs, folder / run_files::kMetrics, 0).write(synthetic_row(1, 20));
  write_report(fs, folder.path());
  EXPECT_EQ(fs.read(folder / run_files::kReport).find("A step by"), std::string::npos);
  write_file_atomically(fs, folder / run_files::kProfile,
                        R"({"batch": 8, "length": 32, "precision": "bf16", "steps": 2,
    "ranks": [{"times": {"products": 3, "rest": 1}}, {"times": {"products": 5, "rest": 1}}],
    "cells": [{"op": "linear", "segment": "mlp", "seconds": 8},
               {"op": "linear", "segment": "attention", "seconds": 4},
              {"op": "adamw<", "segment": "", "seconds": 2}]})");
  write_report(fs, folder.path());
  const std::string html = fs.read(folder / run_files::kReport);
  for (const char* part : {"A step by purpose", "8 x 32 tokens, bf16, mean of 2 steps and 2 ranks",
                           "products", "80.0 % · 4.0 s", "20.0 % · 1.0 s", "A step by op", "60.0 % · 3.0 s",
                           "adamw&lt;", "10.0 % · ", "A step by segment", "40.0 % · 2.0 s", "no segment"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  write_file_atomically(fs, folder / run_files::kProfile, R"({"steps": 2})");
  EXPECT_THROW(write_report(fs, folder.path()), Error) << "damaged";
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
