// An import copies no file from outside its folder, whatever links say; Hugging Face's cache is one folder.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "exchange/import.h"
#include "support/support.h"

namespace ingot::test::import_links_test {
namespace stdfs = std::filesystem;

TEST(ImportLinks, AFileFromOutsideIsRefusedByName) {
  const TempDir dir;
  stdfs::copy(fixture("exchange/llama_text"), dir / "in");
  write_text(dir / "secret", "key");
  stdfs::create_symlink(dir / "secret", dir / "in/chat_template.jinja");
  try {
    import_huggingface(real_file_system(), dir / "in", dir / "out");
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("in/chat_template.jinja' is a link out of its folder"),
              std::string::npos)
        << e.what();
  }
  for (const auto& entry : stdfs::recursive_directory_iterator(dir.path()))
    EXPECT_TRUE(entry.path().filename() != "chat_template.jinja" || entry.is_symlink()) << entry.path();
}

TEST(ImportLinks, TheCacheOfHuggingFaceIsTaken) {
  const TempDir dir;
  stdfs::create_directories(dir / "cache/snapshots");
  stdfs::create_directories(dir / "cache/blobs");
  stdfs::copy(fixture("exchange/llama_text"), dir / "cache/snapshots/1");
  stdfs::rename(dir / "cache/snapshots/1/tokenizer.json", dir / "cache/blobs/abc");
  stdfs::create_symlink("../../blobs/abc", dir / "cache/snapshots/1/tokenizer.json");
  import_huggingface(real_file_system(), dir / "cache/snapshots/1", dir / "out");
  EXPECT_EQ(read_text(dir / "out/huggingface/tokenizer.json"), read_text(dir / "cache/blobs/abc"));
}

}  // namespace ingot::test::import_links_test
