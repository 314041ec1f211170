// Damaged lines of metrics.jsonl and samples.jsonl are set aside and named; they stop neither a resume nor a
// report.
#include "report/json_lines.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/log.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "support/support.h"

namespace ingot::json_lines_test {

/// What the log says while in scope.
class Heard {
 public:
  explicit Heard(const std::string& path) : path_(path) { log::keep_in(path); }
  ~Heard() { log::keep_in(""); }
  std::string text() const { return test::read_text(path_); }

 private:
  std::string path_;
};

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const MetricRow& row : read_metrics(real_file_system(), path)) steps.push_back(row.step);
  return steps;
}

TEST(JsonLines, ADamagedRowIsSetAsideAndNamed) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  const Heard heard(folder / "log");
  test::write_text(path, "{\"step\":1}\n{\"step\":\n\n{\"step\":4}\n{\"step\":5}\n{\"st");
  EXPECT_EQ(steps_of(path), (std::vector<int64_t>{1, 4, 5}));  // a report leaves them out
  EXPECT_NE(heard.text().find("metrics.jsonl:2"), std::string::npos) << heard.text();
  MetricsWriter writer(real_file_system(), path, 4);
  EXPECT_EQ(test::read_text(path), "{\"step\":1}\n{\"step\":4}\n");
  EXPECT_EQ(test::read_text(path + ".damaged"), "{\"step\":\n\n");
  EXPECT_NE(heard.text().find("2 damaged lines are moved to '" + path + ".damaged'"), std::string::npos)
      << heard.text();
}

TEST(JsonLines, ARowWithAnotherStepIsDamagedToo) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  test::write_text(path,
                   "{\"step\":1}\n{\"step\":92}\n{\"step\":3}\n{\"step\":1}\n{\"step\":5}\n{\"step\":6}\n");
  MetricsWriter writer(real_file_system(), path, 5);
  EXPECT_EQ(test::read_text(path), "{\"step\":1}\n{\"step\":3}\n{\"step\":5}\n");
  EXPECT_EQ(test::read_text(path + ".damaged"), "{\"step\":92}\n{\"step\":1}\n");
}

TEST(JsonLines, LaterDamageGoesWithTheLaterRows) {
  const test::TempDir folder;
  const std::string path = folder / "metrics.jsonl";
  test::write_text(path, "{\"step\":1}\n{\"step\":2}\nx\n{\"step\":4}\n");
  MetricsWriter writer(real_file_system(), path, 2);
  EXPECT_EQ(test::read_text(path), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".damaged"));
}

TEST(JsonLines, ADamagedSampleIsSetAside) {
  const test::TempDir folder;
  FileSystem& fs = real_file_system();
  const std::string path = folder / "samples.jsonl";
  append_sample(fs, path, {2, "a", "b"});
  const auto file = fs.open_append(path);
  file->append("{\"step\":2}\n", 11);
  file->close();
  append_sample(fs, path, {2, "c", "d"});
  EXPECT_EQ(read_samples(fs, path).size(), 2u);
  drop_samples_after(fs, path, 2);
  EXPECT_EQ(read_samples(fs, path)[1].prompt, "c");
  EXPECT_EQ(test::read_text(path + ".damaged"), "{\"step\":2}\n");
}

TEST(JsonLines, AnAddedLineIsWholeAfterATornOne) {
  const test::TempDir folder;
  const std::string path = folder / "journal.jsonl";
  append_line(real_file_system(), path, "{}");
  append_line(real_file_system(), path, "[]");
  EXPECT_EQ(test::read_text(path), "{}\n[]\n");
  test::write_text(path, "{}\n{\"to");
  append_line(real_file_system(), path, "[]");
  EXPECT_EQ(test::read_text(path), "{}\n{\"to\n[]\n");
  test::write_text(path, "");
  append_line(real_file_system(), path, "[]");
  EXPECT_EQ(test::read_text(path), "[]\n");
}

}  // namespace ingot::json_lines_test
