// What `cmake --install` and `cpack` make: a program that runs from anywhere, its manual page and completion,
// and a Debian package of these.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::install_test {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"bin/ingot",
                                  "share/man/man1/ingot.1",
                                  "share/bash-completion/completions/ingot",
                                  "share/zsh/vendor-completions/_ingot",
                                  "share/fish/vendor_completions.d/ingot.fish",
                                  "share/ingot/recipes/first.toml"};

TEST(Install, AProgramWithManualAndCompletion) {
  const test::TempDir folder;
  const auto installed = test::run_process({"/usr/bin/env", "cmake", "--install", INGOT_BUILD_DIR,
                                            "--component", "program", "--prefix", folder / "here"});
  ASSERT_EQ(installed.exit_code, 0) << installed.output;
  for (const char* file : kFiles) EXPECT_GT(fs::file_size((folder / "here/") + file), 0u) << file;
  EXPECT_FALSE(fs::exists(folder / "here/include"));
  const auto run = test::run_process(
      {"/bin/sh", "-c", "cd / && PATH='" + (folder / "here/bin") + "':$PATH && ingot help run"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("\n  ingot run recipe.toml "), std::string::npos) << run.output;
  EXPECT_EQ(test::read_text(folder / "here/share/man/man1/ingot.1"),
            test::run_process({INGOT_BINARY, "man"}).output);
}

TEST(Install, ADebianPackage) {
  if (std::system("command -v dpkg-deb >/dev/null") != 0) GTEST_SKIP() << "SKIPPED: no dpkg-deb";
  const test::TempDir folder;
  const auto made = test::run_process(
      {"/usr/bin/env", "cpack", "--config", INGOT_BUILD_DIR "/CPackConfig.cmake", "-B", folder / "package"});
  ASSERT_EQ(made.exit_code, 0) << made.output;
  std::string package;
  for (const auto& entry : fs::directory_iterator(folder / "package"))
    if (entry.path().extension() == ".deb") package = entry.path().string();
  ASSERT_NE(package, "") << made.output;
  EXPECT_EQ(fs::path(package).filename().string().rfind("ingot_", 0), 0u) << package;
  ASSERT_EQ(test::run_process({"/usr/bin/env", "dpkg-deb", "-x", package, folder / "root"}).exit_code, 0);
  for (const char* file : kFiles) EXPECT_GT(fs::file_size((folder / "root/usr/") + file), 0u) << file;
  const auto run = test::run_process({folder / "root/usr/bin/ingot", "--version"});
  EXPECT_EQ(run.output, test::run_process({INGOT_BINARY, "--version"}).output);
  const std::string facts = test::run_process({"/usr/bin/env", "dpkg-deb", "-f", package}).output;
  EXPECT_NE(facts.find("Package: ingot\n"), std::string::npos) << facts;
}

/// A package is for other machines too, which a program of this machine's instruction set alone is not.
TEST(Install, APackageOfANativeBuildIsRefused) {
  const test::TempDir folder;
  const auto configured =
      test::run_process({"/usr/bin/env", "cmake", "-G", "Ninja", "-S", INGOT_SOURCE_DIR, "-B",
                         folder / "build", "-DINGOT_NATIVE=ON", "-DINGOT_TESTS=OFF"});
  ASSERT_EQ(configured.exit_code, 0) << configured.output;
  const auto refused = test::run_process(
      {"/usr/bin/env", "cpack", "--config", folder / "build/CPackConfig.cmake", "-B", folder / "package"});
  EXPECT_NE(refused.exit_code, 0) << refused.output;
  EXPECT_NE(refused.output.find("-DINGOT_NATIVE=OFF"), std::string::npos) << refused.output;
}

}  // namespace ingot::install_test
