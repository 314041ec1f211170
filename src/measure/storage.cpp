// See storage.h.
#include "measure/storage.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/philox.h"
#include "base/progress.h"
#include "measure/scratch_file.h"

namespace ingot {
namespace {

struct Trial {
  double iops = 0, latency = 0, slow = 0;
};

/// One thread's transfers until the time is over, at random offsets, so that read-ahead does not help.
void transfer(const ScratchFile& file, const StorageRow& row, int64_t places, uint64_t stream, double until,
              std::byte* buffer, std::vector<double>& times) {
  const Random random(11, RandomPurpose::test, stream);
  for (uint64_t i = 0; times.empty() || monotonic_seconds() < until; ++i) {
    const int64_t offset = static_cast<int64_t>(random.below(i, static_cast<uint64_t>(places))) * row.bytes;
    const double begin = monotonic_seconds();
    if (row.write)
      file.write(buffer, row.bytes, offset);
    else
      file.read(buffer, row.bytes, offset);
    times.push_back(monotonic_seconds() - begin);
  }
}

Trial run_trial(const ScratchFile& file, const StorageRow& row, const StorageOptions& o, uint64_t number) {
  if (!file.direct()) file.forget(o.file_bytes);
  const int64_t places = o.file_bytes / row.bytes;
  std::vector<std::vector<double>> times(static_cast<size_t>(row.threads));
  std::exception_ptr failure;
  std::mutex mutex;
  const double begin = monotonic_seconds();
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < row.threads; ++t)
      workers.emplace_back([&, t] {
        try {
          const auto buffer = transfer_buffer(row.bytes);
          const uint64_t stream = number * 4096 + static_cast<uint64_t>(t);
          transfer(file, row, places, stream, monotonic_seconds() + o.seconds, buffer.get(),
                   times[static_cast<size_t>(t)]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
  if (row.write && !file.direct()) file.sync();  // what the page cache took is paid for too
  const double seconds = monotonic_seconds() - begin;
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  return {static_cast<double>(all.size()) / seconds, all[all.size() / 2], all[all.size() * 99 / 100]};
}

Spread sync_seconds(FileSystem& fs, const std::string& folder) {
  constexpr int kLines = 15;
  const std::string path = fmt::format("{}/ingot-sync-{}", folder, ::getpid()), line(200, 'x');
  std::vector<double> seconds;
  {
    const auto file = fs.create(path);
    for (int i = 0; i < kLines; ++i) {
      const double begin = monotonic_seconds();
      file->append(line.data(), line.size());
      file->sync();
      seconds.push_back(monotonic_seconds() - begin);
    }
    file->close();
  }
  fs.remove_all(path);
  return spread_of(std::move(seconds));
}

}  // namespace

double StorageReport::most_reads(int64_t bytes) const {
  double most = 0;
  for (const StorageRow& r : rows)
    if (!r.write && r.bytes == bytes) most = std::max(most, r.iops.median);
  return most;
}

StorageReport measure_storage(const StorageOptions& o) {
  for (const int64_t bytes : o.bytes)
    if (bytes <= 0 || bytes % ScratchFile::kAlignment != 0 || bytes > o.file_bytes)
      throw Error(fmt::format("transfers of {} bytes in a file of {}", bytes, o.file_bytes),
                  "give multiples of 4096, at most the file's size");
  for (const int threads : o.threads)
    if (threads < 1 || threads > 1024)
      throw Error(fmt::format("{} threads of transfers", threads), "give numbers from 1 to 1024");
  FileSystem& fs = real_file_system();
  if (!fs.exists(o.folder))
    throw Error(fmt::format("there is no folder '{}'", o.folder), "name one on the storage to measure");
  if (fs.free_bytes(o.folder) < 2 * static_cast<uint64_t>(o.file_bytes))
    throw Error(fmt::format("'{}' has {} free; measuring there needs twice {}", o.folder,
                            format_bytes(static_cast<double>(fs.free_bytes(o.folder))),
                            format_bytes(static_cast<double>(o.file_bytes))),
                "free some, or give a smaller --file");
  const ScratchFile file(o.folder, true);
  const int64_t piece = std::min<int64_t>(o.file_bytes, int64_t{1} << 20);
  const auto data = transfer_buffer(piece);
  const int64_t whole = o.file_bytes / piece * piece;
  for (int64_t at = 0; at < whole; at += piece) file.write(data.get(), piece, at);
  file.sync();
  StorageOptions used = o;
  used.file_bytes = whole;
  StorageReport report{o.folder, file.direct(), whole, {}};
  for (const bool write : {false, true})
    for (const int threads : o.threads)
      for (const int64_t bytes : o.bytes) report.rows.push_back({write, threads, bytes, {}, {}, {}});
  uint64_t number = 0;
  const auto trials = interleaved(o.trials, report.rows.size(),
                                  [&](size_t r) { return run_trial(file, report.rows[r], used, number++); });
  for (size_t r = 0; r < report.rows.size(); ++r) {
    report.rows[r].iops = spread_over(trials[r], &Trial::iops);
    report.rows[r].latency = spread_over(trials[r], &Trial::latency);
    report.rows[r].slow = spread_over(trials[r], &Trial::slow);
  }
  report.sync = sync_seconds(fs, o.folder);
  return report;
}

}  // namespace ingot
