// Files are hashed once, and again where size, time or inode differ; text that changed after it was tokenized
// is named.
#include "data/checked_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "data/prepared_text.h"
#include "support/data_support.h"
#include "support/support.h"

namespace ingot::test::checked_files_test {

using namespace data;
namespace stdfs = std::filesystem;

/// A file whose time is long past, so that it is remembered.
void write_old(const std::string& path, const std::string& text, int64_t seconds = 1'000'000'000) {
  write_text(path, text);
  const timespec times[2] = {{seconds, 5}, {seconds, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(CheckedFiles, EachFileIsReadOnceUntilItChanges) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  stdfs::create_directories(dir / "set");
  const std::string path = dir / "set/a";
  write_old(path, "first text");
  std::string hash;
  {
    CheckedFiles checked(fs, dir / "set");
    hash = checked.hash(path);
    EXPECT_EQ(checked.bytes_read(), 10);
    checked.save();
  }
  const auto bytes_read = [&](const std::string& folder, double since = 0) {
    CheckedFiles checked(fs, folder, since);
    EXPECT_EQ(checked.hash(folder + "/a"), hash);
    checked.save();
    return checked.bytes_read();
  };
  EXPECT_EQ(bytes_read(dir / "set"), 0);
  const double now = wall_seconds();
  EXPECT_EQ(bytes_read(dir / "set", now), 10) << "--verify-data";
  EXPECT_EQ(bytes_read(dir / "set", now), 0) << "--verify-data of another rank that began with it";
  stdfs::rename(dir / "set", dir / "moved");
  EXPECT_EQ(bytes_read(dir / "moved"), 0) << "the memory moves with the folder";
  stdfs::copy(dir / "moved", dir / "copied");
  EXPECT_EQ(bytes_read(dir / "copied"), 10) << "another inode";
  write_old(dir / "moved/a", "first text", 1'000'000'001);
  EXPECT_EQ(bytes_read(dir / "moved"), 10) << "another time";
  EXPECT_EQ(bytes_read(dir / "moved"), 0);
  write_text(dir / "moved/checked.json", "{\"version\":1,\"files\":3}");
  EXPECT_EQ(bytes_read(dir / "moved"), 10) << "a damaged memory says nothing";
  write_old(dir / "moved/a", "other text");
  EXPECT_NE(CheckedFiles(fs, dir / "moved").hash(dir / "moved/a"), hash);
}

TEST(CheckedFiles, AFileThatMayStillChangeUnseenIsNotRemembered) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  write_old(dir / "a", "text", 4'000'000'000);  // of the future
  CheckedFiles checked(fs, dir.path());
  checked.hash(dir / "a");
  checked.hash(dir / "a");
  EXPECT_EQ(checked.bytes_read(), 8);
}

TEST(PreparedText, NamesWhatIsNewGoneOrChanged) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  stdfs::create_directories(dir / "texts");
  write_old(dir / "texts/a.txt", "one");
  write_old(dir / "texts/b.txt", "two");
  const std::string pattern = dir / "texts/*.txt";
  CheckedFiles checked(fs, dir / "set");
  const std::vector<InputInfo> then = describe_inputs(find_source_files(fs, {pattern}), checked);
  const auto changed = [&](const std::string& path) {
    std::string all;
    for (const std::string& line : changed_text(fs, then, {path}, checked)) all += line + "; ";
    return all;
  };
  EXPECT_EQ(changed(pattern), "");
  EXPECT_EQ(changed(dir / "texts"), "");
  write_old(dir / "texts/b.txt", "TWO", 1'000'000'001);
  EXPECT_EQ(changed(pattern), "'" + (dir / "texts/b.txt") + "' has changed; ") << "of the same size";
  write_old(dir / "texts/b.txt", "two");
  write_old(dir / "texts/c.txt", "three");
  EXPECT_EQ(changed(pattern), "'" + (dir / "texts/c.txt") + "' is new; ");
  stdfs::remove(dir / "texts/c.txt");
  stdfs::remove(dir / "texts/a.txt");
  EXPECT_EQ(changed(pattern), "'" + (dir / "texts/a.txt") + "' is gone; ");
  write_old(dir / "texts/a.txt", "one");
  stdfs::rename(dir / "texts", dir / "elsewhere");
  EXPECT_EQ(changed(dir / "elsewhere/*.txt"), "") << "moved text is the same text";
  EXPECT_EQ(changed(pattern), "") << "all of it gone: its tokens are left";
  EXPECT_THROW(changed_text(fs, then, {dir / "texts/other.txt"}, checked), Error)
      << "a path that was never meant";
}

}  // namespace ingot::test::checked_files_test
