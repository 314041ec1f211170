// See rank_log.h.
#include "train/rank_log.h"

#include <algorithm>
#include <cmath>

#include "report/json_lines.h"

namespace ingot {
namespace {

/// Whole microseconds: more digits would only make the file longer.
double rounded(double seconds) {
  return std::round(std::max(0.0, seconds) * 1e6) / 1e6;
}

}  // namespace

RankLog::RankLog(FileSystem& fs, Communicator& world, const std::string& folder, int64_t step)
    : world_(world) {
  if (world.rank() != 0) return;
  const std::string path = folder + "/" + kRanksFile;
  keep_lines_until(fs, path, step, true, [](std::string_view line, const std::string& where) {
    return parse_rank_times(line, where).step;
  });
  file_ = fs.open_append(path);
}

void RankLog::add(double busy, double waited, double data_wait) {
  sums_[0] += busy;
  sums_[1] += waited;
  sums_[2] += data_wait;
  ++steps_;
}

void RankLog::end_window(int64_t step) {
  const auto ranks = static_cast<size_t>(world_.size());
  std::vector<double> all(std::begin(sums_), std::end(sums_));
  if (ranks > 1) {
    all.resize(3 * ranks);
    world_.all_gather(Tensor::of(sums_, {3}), Tensor::of(all.data(), {3 * world_.size()})).wait();
  }
  if (file_) {
    RankTimes t{.step = step, .steps = steps_};
    for (size_t r = 0; r < ranks; ++r) {
      t.busy.push_back(rounded(all[3 * r]));
      t.waited.push_back(rounded(all[3 * r + 1]));
      t.data_wait.push_back(rounded(all[3 * r + 2]));
    }
    const std::string line = to_json_line(t) + "\n";
    file_->append(line.data(), line.size());
  }
  std::fill(std::begin(sums_), std::end(sums_), 0.0);
  steps_ = 0;
}

void RankLog::sync() {
  if (file_) file_->sync();
}

}  // namespace ingot
