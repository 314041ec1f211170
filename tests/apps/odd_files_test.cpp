// What is no file, given to the program in place of one: FIFOs, devices, links in circles, paths with a zero
// byte. Each is named at once; nothing waits for another program, nothing is read without end.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::odd_files_test {
namespace stdfs = std::filesystem;

using Arguments = std::vector<std::string>;

void refuses(Arguments arguments, const std::string& part) {
  arguments.insert(arguments.begin(), INGOT_BINARY);
  const double begin = monotonic_seconds();
  const ProcessResult r = run_process(arguments);
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  EXPECT_EQ(r.exit_code, 1) << line << r.output;
  EXPECT_NE(r.output.find(part), std::string::npos)
      << line << "\nwanted: " << part << "\nfound: " << r.output;
  EXPECT_LT(monotonic_seconds() - begin, 10) << line;
}

TEST(OddFiles, AreRefusedWhereverAFileIsMeant) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  stdfs::create_symlink(dir / "loop", dir / "loop");
  write_text(dir / "text.txt", "a text");
  write_text(dir / "r.toml", tiny_recipe(dir / "run", dir / "data", dir / "text.txt"));
  const std::pair<std::string, const char*> odd[] = {
      {dir / "fifo", "it is a FIFO (named pipe), expected a file"},
      {"/dev/zero", "it is a device, expected a file"},
      {dir / "loop", "Too many levels of symbolic links"}};
  for (const auto& [path, part] : odd) {
    refuses({"run", path, "--plan"}, part);
    refuses({"run", dir / "r.toml", "--data.sources.0.path=" + path}, part);
    refuses({"generate", dir / "run", "--prompt-file", path}, part);
    refuses({"tokenizer", "encode", path, "x"}, part);
    refuses({"tokenizer", "train", path, "--out", dir / "t"}, part);
  }
  refuses({"kernels", "--json=" + (dir / "fifo")}, "a FIFO (named pipe) stands there");
}

TEST(OddFiles, AreRefusedInAModelFromElsewhere) {
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}) {
    const TempDir dir;
    stdfs::copy(fixture("exchange/llama_text"), dir / "in");
    stdfs::remove(stdfs::path(dir / "in") / name);
    ASSERT_EQ(::mkfifo((stdfs::path(dir / "in") / name).c_str(), 0600), 0);
    refuses({"import", dir / "in", dir / "out"}, "it is a FIFO (named pipe), expected a file");
    stdfs::remove(stdfs::path(dir / "in") / name);
    stdfs::create_symlink("/dev/zero", stdfs::path(dir / "in") / name);
    refuses({"import", dir / "in", dir / "out"}, std::string(name) == "generation_config.json"
                                                     ? "is a link out of its folder"
                                                     : "it is a device, expected a file");
    stdfs::remove(stdfs::path(dir / "in") / name);
    stdfs::create_symlink(name, stdfs::path(dir / "in") / name);  // was taken for a file that is not there
    refuses({"import", dir / "in", dir / "out"}, "Too many levels of symbolic links");
    EXPECT_FALSE(stdfs::exists(dir / "out"));
  }
}

}  // namespace ingot::test::odd_files_test
