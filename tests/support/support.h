// What many tests need: a temporary folder, small files, fixture paths, shared data that may be absent, the
// message of an Error, silence.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace ingot::test {

/// A fresh empty folder, removed with its contents at destruction.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_text(const std::string& path, std::string_view content);
std::string read_text(const std::string& path);

/// Absolute path of a committed fixture under tests/fixtures/.
std::string fixture(const std::string& name);

/// Path of a file of the optional data folder beside the repository (or $INGOT_DATA), or "" if absent;
/// a test that gets "" must GTEST_SKIP() with a message.
std::string optional_data(const std::string& name);

/// What the Error that `body` throws says, and its hint: "what | hint"; "" where it throws none.
std::string message_of(const std::function<void()>& body);

/// No log lines while in scope.
class Quiet {
 public:
  Quiet() : before_(log::level()) { log::set_level(log::Level::silent); }
  ~Quiet() { log::set_level(before_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  log::Level before_;
};

/// max |found - expected| / max |expected|; different sizes fail the test.
double relative_difference(const std::vector<double>& found, const std::vector<double>& expected);

}  // namespace ingot::test
