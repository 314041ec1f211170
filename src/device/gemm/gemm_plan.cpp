// See gemm_plan.h.
#include "device/gemm/gemm_plan.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/round.h"

namespace ingot {
namespace {

constexpr int64_t kMaxTaskRows = 1024;
constexpr int64_t kMinTaskRows = 128;  // fewer rows would not repay packing B again
constexpr int64_t kTailParts = 4;
constexpr int64_t kMaxTailSteps = 4096;  // k-steps, so that a part's B is still in a cache

class TaskPlanner {
 public:
  TaskPlanner(GemmPlan& plan, const GemmTileShape& tile)
      : plan_(plan), tile_(tile), common_(plan.problems.front()) {}

  /// Tasks of about 1/8 of a thread's work, of whole micro-panels; rows are split where there are too few
  /// micro-panels or too many rows.
  void run(int64_t work) {
    const int64_t target = std::max<int64_t>(work / (num_threads() * 8), kInlineWork / 2);
    plan_.tasks.clear();
    plan_.ranges.clear();
    for (const GemmBlock& b : plan_.blocks) add_packing_tasks(b, target);
    deal(false);
    plan_.packing_tasks = static_cast<int64_t>(plan_.tasks.size());
    for (const GemmBlock& b : plan_.blocks) add_other_tasks(b, target);
    deal(true);
    plan_.ranges.push_back(static_cast<int64_t>(plan_.tasks.size()));
  }

 private:
  /// Columns of the tasks that pack A: one micro-panel, so that each row is packed once.
  int64_t packing_columns(const GemmBlock& b) const {
    return b.a_offset == GemmBlock::kInPlace ? 0 : columns_of_task(b.problem->n, tile_.nr);
  }

  /// Smaller than the others, so that threads that end apart wait little before the others begin.
  void add_packing_tasks(const GemmBlock& b, int64_t target) {
    const int64_t cols = packing_columns(b), row_work = std::max<int64_t>(1, cols * (b.k1 - b.k0));
    const int64_t rows = std::max(kMinTaskRows, round_up(target / 8 / row_work, 2 * tile_.mr));
    for (int64_t row = 0; cols > 0 && row < b.rows; row += rows)
      add(b, 0, cols, row, std::min(rows, b.rows - row));
  }

  /// Tasks of the same rows follow each other, so that A stays in a cache.
  void add_other_tasks(const GemmBlock& b, int64_t target) {
    const int64_t n = b.problem->n;
    const int64_t panel_work = std::min(n, tile_.nr) * b.rows * b.steps();
    const int64_t most = common_.b_packed ? 1 : kMaxMicroPanels;
    const int64_t panels = std::clamp<int64_t>(target / panel_work, 1, most);
    const int64_t by_work = ceil_div(panel_work, target), least = ceil_div(b.rows, kMaxTaskRows);
    const int64_t multiple =
        plan_.blocks.size() == 1 ? num_threads() : 1;  // so that each thread has as many rows
    const int64_t wanted =
        by_work == 1 && least == 1 ? 1 : std::max(by_work / multiple * multiple, round_up(least, multiple));
    const int64_t splits = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, b.rows / kMinTaskRows));
    const int64_t rows = round_up(ceil_div(b.rows, splits), tile_.mr);
    for (int64_t row = 0; row < b.rows; row += rows)
      for (int64_t col0 = packing_columns(b), cols = 0; col0 < n; col0 += cols) {
        cols = columns_of_task(n - col0, panels * tile_.nr);
        add(b, col0, cols, row, std::min(rows, b.rows - row));
      }
  }

  /// The last micro-panel is not a single vector where two can share the columns: a tile of one vector loads
  /// nine times for eight multiply-adds and reached 62 % of peak, one of two vectors 86 %.
  int64_t columns_of_task(int64_t rest, int64_t most) const {
    const bool shared =
        !common_.b_packed && tile_.nr > tile_.lanes && rest > most && rest <= most + tile_.lanes;
    return std::min(rest, shared ? most - tile_.lanes : most);
  }

  void add(const GemmBlock& b, int64_t col0, int64_t cols, int64_t row, int64_t rows) {
    if (common_.lower_only) {
      const int64_t first = std::max(row, col0 / tile_.mr * tile_.mr - b.row0);
      rows -= first - row;
      row = first;
      if (rows <= 0) return;
    }
    plan_.undealt.push_back({&b, col0, cols, row, rows});
  }

  /// Deals the tasks to threads in order: to each those whose middle is in its share of the work, so that it
  /// multiplies the rows of A that it has packed.
  void deal(bool split_last) {
    const int64_t threads = num_threads();
    const size_t all_ranges = plan_.ranges.size() + static_cast<size_t>(threads);
    int64_t all = 0, before = 0, begun = 0;
    for (const GemmTaskRange& t : plan_.undealt) all += t.work();
    const auto thread_of = [&](const GemmTaskRange& t) {
      return (2 * before + t.work()) * threads / (2 * all);
    };
    for (size_t i = 0; i < plan_.undealt.size(); ++i) {
      const GemmTaskRange& t = plan_.undealt[i];
      for (const int64_t thread = thread_of(t); begun <= thread; ++begun)
        plan_.ranges.push_back(static_cast<int64_t>(plan_.tasks.size()));
      before += t.work();
      const bool last = i + 1 == plan_.undealt.size() || thread_of(plan_.undealt[i + 1]) >= begun;
      if (split_last && last)
        split(t);
      else
        plan_.tasks.push_back(t);
    }
    plan_.ranges.resize(all_ranges, static_cast<int64_t>(plan_.tasks.size()));
    plan_.undealt.clear();
  }

  /// Cuts a thread's last task into up to kTailParts, so that threads end together; not where each part would
  /// transpose B again, or read it again from memory.
  void split(const GemmTaskRange& t) {
    const bool repays = num_threads() > 1 && (!common_.b.k_contiguous() || common_.c.transposed) &&
                        t.block->k1 - t.block->k0 <= kMaxTailSteps;
    const int64_t rows =
        repays ? std::max(kMinTaskRows / 2, round_up(ceil_div(t.rows, kTailParts), 2 * tile_.mr)) : t.rows;
    for (int64_t row = t.row; row < t.row + t.rows; row += rows)
      plan_.tasks.push_back({t.block, t.col0, t.cols, row, std::min(rows, t.row + t.rows - row)});
  }

  GemmPlan& plan_;
  const GemmTileShape& tile_;
  const GemmProblem& common_;  ///< for what all problems of the call share
};

}  // namespace

void plan_tasks(GemmPlan& plan, const GemmTileShape& tile, int64_t work) {
  TaskPlanner(plan, tile).run(work);
}

}  // namespace ingot
