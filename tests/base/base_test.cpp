// base/: random numbers against published vectors, the pool's guarantees, atomic files, locks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/folder_lock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "support/support.h"

namespace ingot::base_test {

// Known answers published with the Random123 library.
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, f, f), (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalHasUnitMoments) {
  const Random random(7, RandomPurpose::test);
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal(static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0, 5.0 * std::sqrt(2.0 / n));
}

TEST(Parallel, CoversEveryItemOnce) {
  for (const int64_t count : {0, 1, 7, 1000})
    for (const int64_t grain : {1, 3, 5000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)]++;
      });
      for (auto& s : seen) EXPECT_EQ(s, 1);
    }
}

TEST(Parallel, RethrowsAndStaysUsable) {
  EXPECT_THROW(parallel_for(100, 1,
                            [](int64_t begin, int64_t) {
                              if (begin == 50) throw Error("planted");
                            }),
               Error);
  std::atomic<int64_t> total{0};
  parallel_for(100, 7, [&](int64_t begin, int64_t end) { total += end - begin; });
  EXPECT_EQ(total, 100);
}

TEST(Parallel, NestedCallsRunInline) {
  std::atomic<int64_t> total{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    parallel_for(10, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
  });
  EXPECT_EQ(total, 80);
}

/// Workers that spin, that fall asleep and that come when a job is over: none may touch a job that its caller
/// has left.
TEST(Parallel, JobsFollowEachOtherAtAnyPace) {
  for (int job = 0; job < 3000; ++job) {
    std::array<std::atomic<int>, 3> seen{};
    parallel_for(3, 1, [&](int64_t begin, int64_t) { ++seen[static_cast<size_t>(begin)]; });
    for (auto& s : seen) ASSERT_EQ(s, 1) << job;
    if (job % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

/// Every task waits until all have begun, so that no thread can take another's.
TEST(Parallel, AThreadBeginsWithTheSamePartEveryTime) {
  constexpr int kThreads = 3;
  const int before = num_threads();
  set_num_threads(kThreads);
  std::array<std::thread::id, kThreads> first;
  for (int job = 0; job < 100; ++job) {
    std::array<std::thread::id, kThreads> threads;
    std::atomic<int> begun{0};
    parallel_for(kThreads, 1, [&](int64_t piece, int64_t) {
      threads[static_cast<size_t>(piece)] = std::this_thread::get_id();
      for (++begun; begun < kThreads;) std::this_thread::yield();
    });
    if (job == 0) first = threads;
    ASSERT_EQ(threads, first) << job;
  }
  EXPECT_EQ(first[0], std::this_thread::get_id());
  set_num_threads(before);
}

TEST(Files, AtomicWriteReplaces) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_file_atomically(fs, dir / "a", "old");
  write_file_atomically(fs, dir / "a", "new");
  EXPECT_EQ(fs.read(dir / "a"), "new");
  EXPECT_EQ(fs.list(dir.path()), std::vector<std::string>{"a"});
}

TEST(Files, WritersOfTheirOwnNamesDoNotDisturbEachOther) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  const std::vector<std::string> texts = {std::string(100000, 'a'), std::string(100000, 'b')};
  std::vector<std::thread> writers;
  for (size_t w = 0; w < texts.size(); ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) write_file_atomically(fs, dir / "a", texts[w], fmt::format(".{}", w));
    });
  for (std::thread& writer : writers) writer.join();
  const std::string text = fs.read(dir / "a");
  EXPECT_TRUE(text == texts[0] || text == texts[1]);
  EXPECT_EQ(fs.list(dir.path()).size(), 1u) << "nothing temporary stays";
}

TEST(Files, ErrorsNameThePath) {
  try {
    real_file_system().read("/nowhere/at/all");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/at/all"), std::string::npos);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3F80);  // halfway, even below
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3F82);  // halfway, even above
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(3.4e38f))));
}

TEST(Hash, PiecesEqualWhole) {
  Hasher h;
  h.update("ab", 2);
  h.update("c", 1);
  EXPECT_EQ(h.hex(), hash128_hex("abc", 3));
}

TEST(FolderLock, ASecondOneIsRefusedAndNamesTheFirst) {
  const test::TempDir folder;
  const auto message = [&](const std::string& path, const std::string& use) {
    try {
      const FolderLock lock(path, use);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  {
    const FolderLock lock(folder.path(), "run");
    EXPECT_EQ(
        message(folder.path(), "run")
            .find(fmt::format("the run folder '{}' is in use by process {} on ", folder.path(), ::getpid())),
        0u);
    EXPECT_EQ(message(folder.path(), "data"), "");  // another use, another lock
  }
  EXPECT_EQ(message(folder.path(), "run"), "");
  EXPECT_NE(message(folder / "nowhere", "run").find("cannot create"), std::string::npos);
}

TEST(FolderLock, WaitsForTheOther) {
  const test::TempDir folder;
  std::atomic<bool> released = false;
  auto first = std::make_unique<FolderLock>(folder.path(), "data");
  std::thread other([&] {
    const FolderLock second(folder.path(), "data", FolderLock::Busy::wait);
    EXPECT_TRUE(released);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  released = true;
  first.reset();
  other.join();
}

TEST(Log, AFileKeepsLinesWithTheirTime) {
  const test::TempDir folder;
  const log::Level before = log::level();
  log::set_level(log::Level::silent);
  ASSERT_TRUE(log::keep_in(folder / "log"));
  log::info("a step");
  log::warn("a {}", "doubt");
  log::debug("a detail");
  log::set_level(before);
  log::keep_in("");
  log::debug("nothing more");
  const std::string text = real_file_system().read(folder / "log"), line = text.substr(0, text.find('\n'));
  EXPECT_EQ(line.size(), std::string("2026-01-01T00:00:00Z a step").size()) << text;
  EXPECT_EQ(line.substr(19), "Z a step");
  EXPECT_EQ(text.substr(line.size() + 21), " warning: a doubt\n");
  EXPECT_FALSE(log::keep_in(folder / "nowhere/log"));
}

}  // namespace ingot::base_test
