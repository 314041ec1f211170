// A mapped file that shrinks while it is read ends the program with a message that names it.
#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "support/support.h"

namespace ingot::mapped_file_test {

TEST(MappedFileDeathTest, AFileThatShrinksIsNamed) {
  const test::TempDir folder;
  const std::string path = folder / "shard.tokens";
  test::write_text(path, std::string(20000, 'x'));
  const auto other = real_file_system().map(path);
  const auto map = real_file_system().map(path);
  EXPECT_EQ(map->bytes()[19999], std::byte{'x'});
  const auto read_after_cut = [&] {
    std::filesystem::resize_file(path, 5000);
    const volatile std::byte* last = &map->bytes()[19999];
    [[maybe_unused]] const std::byte read = *last;
  };
  EXPECT_EXIT(read_after_cut(), ::testing::ExitedWithCode(1), "error: '.*shard.tokens' could not be read");
}

TEST(MappedFileDeathTest, AnotherBusErrorStaysOne) {
  const test::TempDir folder;
  test::write_text(folder / "file", "x");
  const auto map = real_file_system().map(folder / "file");
  EXPECT_EXIT(
      {
        ::raise(SIGBUS);
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace ingot::mapped_file_test
