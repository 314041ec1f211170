// report/: metrics rows, TensorBoard bytes, run folders, differences of runs; progress lines.
#include "report/run_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/build_info.h"
#include "base/error.h"
#include "base/progress.h"
#include "report/metrics.h"
#include "report/run_diff.h"
#include "report/tensorboard.h"
#include "support/support.h"

namespace ingot::run_record_test {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes)
    out += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

MetricRow row_of(int64_t step, double loss) {
  MetricRow row;
  row.step = step;
  row.wall = 1000.5 + static_cast<double>(step);
  row.set("loss", loss);
  row.set("router/0/load", std::vector<double>{0.25, 0.75});
  return row;
}

TEST(Metrics, LineReadsBackExactly) {
  MetricRow row = row_of(7, 0.1 + 0.2);
  row.set("grad_norm", std::numeric_limits<double>::infinity());
  row.set("log_z", std::nan(""));
  const MetricRow back = parse_metric_row(to_json_line(row), "t");
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.wall, row.wall);
  EXPECT_EQ(*back.scalar("loss"), 0.1 + 0.2);
  EXPECT_EQ(*back.scalar("grad_norm"), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(*back.scalar("log_z")));
  EXPECT_EQ(*back.list("router/0/load"), (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(back.scalar("absent"), nullptr);
}

TEST(Metrics, RefusesWhatIsNotARow) {
  for (const std::string text : {"", "x", "[]", "{}", "{\"step\":\"1\"}", "{\"step\":1,\"a\":{}}",
                                 "{\"step\":1.5}", "{\"step\":1,\"a\":\"b\"}", "{\"step\":1,\"a\":[[1]]}"})
    EXPECT_THROW(parse_metric_row(text, "t"), Error) << text;
  EXPECT_THROW(parse_metric_row("{\"step\":1,\"a\":" + std::string(200000, '['), "t"), Error);
}

TEST(Metrics, ResumeDropsLaterStepsAndTheTornLine) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsWriter writer(fs, path, 0);
    for (int step = 1; step <= 10; ++step) writer.write(row_of(step, step));
    writer.sync();
  }
  const std::string whole = fs.read(path);
  std::ofstream(path, std::ios::app) << "{\"step\": 11, \"lo";
  EXPECT_EQ(read_metrics(fs, path).size(), 10u);
  {
    MetricsWriter writer(fs, path, 4);
    for (int step = 5; step <= 10; ++step) writer.write(row_of(step, step));
    EXPECT_THROW(writer.write(row_of(10, 0)), InternalError);
  }
  EXPECT_EQ(fs.read(path), whole);
  MetricsWriter fresh(fs, path, 0);
  EXPECT_TRUE(read_metrics(fs, path).empty());
}

TEST(TensorBoard, ChecksumsMatchPublishedVectors) {
  const std::string zeros(32, '\0');
  EXPECT_EQ(crc32c(zeros.data(), zeros.size()), 0x8a9136aau);
  const std::string text =
      "\x1a\x11"
      "CRC test, one two";
  EXPECT_EQ(masked_crc32c(text.data(), text.size()), 0x5794d08au);
  EXPECT_EQ(crc32c(text.data() + 3, text.size() - 3, crc32c(text.data(), 3)),
            crc32c(text.data(), text.size()));
}

TEST(TensorBoard, RecordsMatchKnownBytes) {
  EXPECT_EQ(hex(version_record(1)),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex(scalar_record(2, 3, "loss", 2.5f)),
            "1a00000000000000129bd82d09000000000000004010032a0d0a0b0a046c6f73731500002040bb63418a");
}

TEST(TensorBoard, ResumeOpensANewFileThatVoidsLaterSteps) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  const std::string events = folder / "events";
  EventWriter first(fs, events, 0, 100), second(fs, events, 7, 100);
  EXPECT_NE(first.path(), second.path());
  EXPECT_NE(first.path().find("events.out.tfevents.0000000100."), std::string::npos);
  first.write(row_of(3, 2.5));
  first.write_text(3, 100, "sample", "Once upon");
  EXPECT_EQ(fs.read(first.path()).rfind(version_record(100), 0), 0u);
  EXPECT_NE(fs.read(first.path()).find("sample/text_summary"), std::string::npos);
  EXPECT_EQ(fs.read(second.path()), version_record(100) + session_start_record(100, 8));
}

TEST(RunRecord, KeepsGroupsConfigAndSamples) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  RunRecord record = RunRecord::of_this_machine("first", 0);
  record.set("model", "parameters", int64_t{8840488784});
  record.set("model", "width", 0.5);
  record.set("model", "parameters", int64_t{7});
  record.set_config(parse_toml("seed = 3\n[optimizer]\nlr = 0.1\n", "t"));
  write_run_record(fs, folder.path(), record);
  const RunRecord back = read_run_record(fs, folder.path());
  EXPECT_EQ(back.json(), record.json());
  EXPECT_EQ(back.config_toml(), "seed = 3\n\n[optimizer]\nlr = 0.1\n");
  EXPECT_EQ(value_text(*back.find("run", "started")), "1970-01-01 00:00:00 UTC");
  EXPECT_EQ(value_text(*back.find("model", "parameters")), "7");
  EXPECT_EQ(back.find("model", "depth"), nullptr);
  for (const char* text : {"", "[]", "{\"a\": 1}", "{\"a\": {\"b\": []}}", "{"})
    EXPECT_THROW(RunRecord::parse(text, "t"), Error) << text;

  const std::string samples = folder / "samples.jsonl";
  append_sample(fs, samples, {1, "Once", " upon\na time"});
  append_sample(fs, samples, {2, "a\xff", "\"b\""});
  std::ofstream(samples, std::ios::app) << "{\"step\":3";
  drop_samples_after(fs, samples, 1);
  append_sample(fs, samples, {2, "a\xff", "\"b\""});
  ASSERT_EQ(read_samples(fs, samples).size(), 2u);
  EXPECT_EQ(read_samples(fs, samples)[0].text, " upon\na time");
  EXPECT_EQ(read_samples(fs, samples)[1].prompt, "a\xEF\xBF\xBD");
  EXPECT_TRUE(read_samples(fs, folder / "absent").empty());
}

TEST(RunRecord, NamesBuildAndMachine) {
  EXPECT_EQ(build_info().libraries.size(), 6u);
  for (const auto& [name, version] : build_info().libraries) EXPECT_FALSE(version.empty()) << name;
  EXPECT_NE(build_info().flags.find("-ffp-contract=off"), std::string::npos);
  EXPECT_GT(machine_info().cores, 0);
  EXPECT_GT(machine_info().memory_bytes, int64_t{1} << 26);
}

TEST(RunDiff, FindsTheFirstStepThatParts) {
  test::TempDir folder;
  FileSystem& fs = real_file_system();
  const auto make = [&](const std::string& name, const std::string& config, int parts_at) {
    RunRecord record = RunRecord::of_this_machine(name, 0);
    record.set_config(parse_toml(config, "t"));
    write_run_record(fs, folder / name, record);
    MetricsWriter writer(fs, (folder / name) + "/metrics.jsonl", 0);
    for (int step = 1; step <= 20; ++step) writer.write(row_of(step, step >= parts_at ? 1.5 : 2.5));
  };
  make("a", "lr = 0.1", 100);
  make("b", "lr = 0.2", 13);
  make("c", "lr = 0.1", 100);
  const RunDifference ab = compare_runs(fs, folder / "a", folder / "b");
  ASSERT_EQ(ab.config.size(), 1u);
  EXPECT_EQ(ab.config[0].path, "lr");
  EXPECT_EQ(ab.first_loss_difference, 13);
  const std::string text = to_text(ab, "a", "b");
  EXPECT_NE(text.find("loss: differs from step 13 on"), std::string::npos) << text;
  EXPECT_NE(text.find("lr  0.1  ->  0.2"), std::string::npos) << text;
  EXPECT_NE(text.find("build, machine and model: equal"), std::string::npos) << text;
  const RunDifference ac = compare_runs(fs, folder / "a", folder / "c");
  EXPECT_TRUE(ac.config.empty() && ac.metrics.empty() && !ac.first_loss_difference);
  EXPECT_NE(to_text(ac, "a", "c").find("bit for bit equal up to step 20"), std::string::npos);
  EXPECT_THROW(compare_runs(fs, folder / "a", folder / "absent"), Error);
}

// Twice as fast after an hour: a minute later the estimate is near the new speed, the mean would hardly have
// moved.
TEST(Progress, EstimatesFollowTheRecentSpeed) {
  RecentSpeed speed(100);
  EXPECT_EQ(speed.per_second(), 0);
  double now = 100;
  for (int i = 0; i < 3600; ++i) speed.add(++now, 5);
  EXPECT_NEAR(speed.per_second(), 5, 1e-9);
  for (int i = 0; i < 180; ++i) speed.add(++now, 10);
  EXPECT_NEAR(speed.per_second(), 10, 0.3);
  speed.add(now - 50, 0);  // a clock that goes back
  EXPECT_NEAR(speed.per_second(), 10, 0.3);
}

TEST(Progress, LinesAreLimitedAndSayTimeLeft) {
  double now = 0;
  std::vector<std::string> lines;
  const auto sink = [&] {
    return Progress::Sink{[&] { return now; }, [&](const std::string& line, bool) { lines.push_back(line); },
                          10};
  };
  {
    Progress progress("tokenizing", 1000000, Progress::Unit::bytes, sink());
    for (int second = 0; second < 50; ++second) {
      now = second;
      progress.update(second * 20000);
    }
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines[1], "tokenizing: 24 %, 234 KiB of 977 KiB, 19.5 KiB/s, 38 s left");
    now = 50;
    progress.update(1000000);
    progress.finish();
    EXPECT_EQ(lines.back(), "tokenizing: 977 KiB in 50 s (19.5 KiB/s)");
  }
  const size_t before = lines.size();
  { Progress progress("counting", 0, Progress::Unit::items, sink()); }
  ASSERT_EQ(lines.size(), before + 1);
  EXPECT_EQ(lines.back(), "") << "an error follows, and nothing stale stands before it";
  Progress("tokenizing words", 0, Progress::Unit::bytes, sink()).finish();
  EXPECT_EQ(lines.back(), "tokenizing words: up to date");
  EXPECT_EQ(format_seconds(7205), "2 h 00 m");
  EXPECT_EQ(format_seconds(200), "3 m 20 s");
  EXPECT_EQ(format_bytes(1.5e9), "1.40 GiB");
  EXPECT_EQ(format_seconds(3e11), "9,506 years");
  EXPECT_EQ(format_seconds(6.4e7), "2 years");
  EXPECT_EQ(format_count(8840488784.0), "8.84B");
}

}  // namespace ingot::run_record_test
