// base/file_system on what is no regular file, on links that lead elsewhere, and on files that are too long.
#include "base/file_system.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/folder_lock.h"
#include "support/support.h"

namespace ingot::test::file_system_test {
namespace {

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(FileSystem, OnlyFilesAreReadAndOthersAreNamedAtOnce) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", (dir / "socket").c_str());
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::filesystem::create_symlink(dir / "loop", dir / "loop");
  std::filesystem::create_symlink(dir / "fifo", dir / "link");
  const std::pair<std::string, const char*> cases[] = {
      {dir / "fifo", "it is a FIFO (named pipe), expected a file"},
      {dir / "link", "it is a FIFO (named pipe), expected a file"},
      {dir / "socket", "it is a socket, expected a file"},
      {dir.path(), "it is a folder, expected a file"},
      {"/dev/zero", "it is a device, expected a file"},
      {dir / "loop", "Too many levels of symbolic links"},
      {dir / "none", "No such file or directory"},
      {(dir / "a") + std::string("\0b", 2), "is no path: it has a zero byte"}};
  for (const auto& [path, part] : cases) {
    for (const std::string& message : {error_of([&] { fs.read(path); }), error_of([&] { fs.map(path); })})
      EXPECT_NE(message.find(part), std::string::npos) << path << ": " << message;
  }
  EXPECT_NE(error_of([&] { fs.create_folders(std::string("a\0b", 3)); }).find("zero byte"),
            std::string::npos);
  for (const char* name : {"fifo", "socket"}) {
    EXPECT_NE(error_of([&] { fs.create(dir / name); }).find("stands there"), std::string::npos);
    EXPECT_NE(error_of([&] { fs.open_append(dir / name); }).find("stands there"), std::string::npos);
    EXPECT_NE(error_of([&] { write_file_atomically(fs, dir / name, "x"); }).find("stands there"),
              std::string::npos);
  }
  ::close(socket);
}

TEST(FileSystem, ALimitHoldsBeforeReading) {
  const TempDir dir;
  write_text(dir / "file", "12345");
  EXPECT_EQ(read_at_most(real_file_system(), dir / "file", 5), "12345");
  EXPECT_NE(
      error_of([&] { read_at_most(real_file_system(), dir / "file", 4); }).find("has 5 bytes, at most 4"),
      std::string::npos);
  std::filesystem::resize_file(dir / "file", uint64_t{1} << 40);  // a hole
  EXPECT_NE(error_of([&] { real_file_system().read(dir / "file"); }).find("has 1099511627776 bytes"),
            std::string::npos);
  EXPECT_NE(real_file_system().read("/proc/self/status"), "") << "a file that says that it has 0 bytes";
}

TEST(FileSystem, NoLinkRedirectsWhatIsWritten) {
  const TempDir dir;
  write_text(dir / "victim", "keep me");
  for (const char* name : {"out.tmp", "run.lock", "out.partial"})
    std::filesystem::create_symlink(dir / "victim", dir / name);
  std::filesystem::create_hard_link(dir / "victim", dir / "hard.tmp");
  write_file_atomically(real_file_system(), dir / "out", "text");
  write_file_atomically(real_file_system(), dir / "hard", "text");
  real_file_system().create(dir / "out.partial")->close();
  EXPECT_NE(error_of([&] { FolderLock(dir.path(), "run", FolderLock::Busy::refuse); }).find("run.lock"),
            std::string::npos);
  EXPECT_EQ(read_text(dir / "victim"), "keep me");
  EXPECT_EQ(read_text(dir / "out"), "text");
  EXPECT_FALSE(std::filesystem::exists(dir / "out.tmp"));
}

TEST(FileSystem, AFailedJobLeavesNothingBehind) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  try {
    fs.create_folders(dir / "made");
    Unfinished unfinished(fs, dir / "made");
    write_text(dir / "made/file", "x");
    fail("no more");
  } catch (const Error&) {
  }
  EXPECT_FALSE(fs.exists(dir / "made"));
  fs.create_folders(dir / "kept");
  {
    Unfinished unfinished(fs, dir / "kept");
    unfinished.keep();
  }
  EXPECT_TRUE(fs.exists(dir / "kept"));
}

}  // namespace
}  // namespace ingot::test::file_system_test
