// Sources that are not what a person thinks: links in circles, FIFOs among files, rows of megabytes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "data/source.h"
#include "support/support.h"

namespace ingot::test::hostile_source_test {
namespace {

namespace stdfs = std::filesystem;

std::vector<std::string> found(const std::string& path) {
  std::vector<std::string> names;
  for (const data::SourceFile& f : data::find_source_files(real_file_system(), {path}))
    names.push_back(stdfs::path(f.path).filename());
  return names;
}

TEST(HostileSource, LinksInCirclesAndFifosAreLeftOut) {
  const TempDir dir;
  stdfs::create_directories(dir / "text/below");
  write_text(dir / "text/a.txt", "a");
  write_text(dir / "text/below/b.txt", "b");
  stdfs::create_directory_symlink(dir / "text", dir / "text/below/up");
  stdfs::create_symlink(dir / "text/self", dir / "text/self");
  ASSERT_EQ(::mkfifo((dir / "text/fifo").c_str(), 0600), 0);
  EXPECT_EQ(found(dir / "text"), (std::vector<std::string>{"a.txt", "b.txt"}));
  for (const char* name : {"text/fifo", "text/self"}) EXPECT_THROW(found(dir / name), Error) << name;
  EXPECT_THROW(found("/dev/zero"), Error);
}

std::string error_of_row(const std::string& row) {
  const TempDir dir;
  write_text(dir / "rows.jsonl", row + "\n");
  data::DocumentReader reader(real_file_system(),
                              data::find_source_files(real_file_system(), {dir / "rows.jsonl"}), {});
  std::string_view document;
  try {
    reader.next(document);
  } catch (const Error& e) {
    return std::string(e.what()) + e.hint();
  }
  return "";
}

TEST(HostileSource, AnErrorShowsAShortPartOfALongRow) {
  const std::string megabyte(1 << 20, 'x');
  const std::string rows[] = {
      "{\"text\": \"" + megabyte,      "{\"text\": \"" + megabyte + "\x01\"}",
      "{\"" + megabyte + "\": 1}",     megabyte,
      "{\"text\": \"a\"} " + megabyte, "{\"text\": " + std::string(1 << 20, '7') + "}"};
  for (const std::string& row : rows) {
    const std::string error = error_of_row(row);
    EXPECT_NE(error.find("rows.jsonl:1: "), std::string::npos) << row.substr(0, 20);
    EXPECT_LT(error.size(), 600u) << row.substr(0, 20);
  }
}

}  // namespace
}  // namespace ingot::test::hostile_source_test
