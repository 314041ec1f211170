// See quality.h.
#include "eval/quality.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "eval/metrics.h"

namespace ingot {
namespace {

using Curve = std::map<int64_t, double>;                          // by step
using Curves = std::map<std::pair<std::string, int64_t>, Curve>;  // by arm and seed

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double v : values) {
    const auto below = std::count_if(values.begin(), values.end(), [&](double w) { return w < v; });
    const auto equal = std::count(values.begin(), values.end(), v);
    ranks.push_back(static_cast<double>(below) + (static_cast<double>(equal) + 1) / 2);
  }
  return ranks;
}

std::optional<double> mean_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  return mean(values);
}

std::optional<double> monotonicity_of(const Curves& curves) {
  std::vector<double> all;
  for (const auto& [key, curve] : curves) {
    std::vector<double> steps, scores;
    for (const auto& [step, score] : curve)
      steps.push_back(static_cast<double>(step)), scores.push_back(score);
    if (steps.size() >= 3) all.push_back(spearman(steps, scores));
  }
  return mean_of(all);
}

/// Scores at the last step, by arm.
std::map<std::string, std::vector<double>> last_scores(const Curves& curves) {
  std::map<std::string, std::vector<double>> last;
  for (const auto& [key, curve] : curves) last[key.first].push_back(curve.rbegin()->second);
  return last;
}

std::optional<double> noise_of(const Curves& curves) {
  std::vector<double> squares;
  for (const auto& [arm, scores] : last_scores(curves))
    if (scores.size() >= 2) squares.push_back(sample_deviation(scores) * sample_deviation(scores));
  if (squares.empty()) return {};
  return std::sqrt(mean(squares));
}

/// Mean over seeds of each arm's score at a step; arms without that step are left out of `arms`.
std::map<std::string, double> scores_at(const Curves& curves, int64_t step) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [key, curve] : curves)
    if (const auto found = curve.find(step); found != curve.end()) all[key.first].push_back(found->second);
  std::map<std::string, double> means;
  for (const auto& [arm, scores] : all) means[arm] = mean(scores);
  return means;
}

std::optional<double> ranking_of(const Curves& curves) {
  std::set<int64_t> steps;
  for (const auto& [key, curve] : curves)
    for (const auto& [step, score] : curve) steps.insert(step);
  std::vector<int64_t> half(std::next(steps.begin(), static_cast<int64_t>(steps.size() / 2)), steps.end());
  if (steps.size() / 2 > 0) half.insert(half.begin(), *std::prev(steps.find(half.front())));
  std::vector<double> taus;
  for (size_t i = 0; i + 1 < half.size(); ++i) {
    const auto now = scores_at(curves, half[i]), next = scores_at(curves, half[i + 1]);
    std::vector<double> a, b;
    for (const auto& [arm, score] : now)
      if (next.contains(arm)) a.push_back(score), b.push_back(next.at(arm));
    if (a.size() >= 2) taus.push_back(kendall(a, b));
  }
  return mean_of(taus);
}

void judge(TaskQuality& q) {
  const auto require = [&](const std::optional<double>& value, double least, const char* what) {
    if (value && !(*value >= least)) q.faults.push_back(fmt::format("{} {:.2f} < {}", what, *value, least));
  };
  require(q.monotonicity, kLeastMonotonicity, "monotonicity");
  require(q.signal, kLeastSignal, "signal");
  require(q.ranking, kLeastRanking, "ranking");
  if (!q.seed_noise) q.faults.emplace_back("noise unknown: one seed");
  if (!q.monotonicity) q.faults.emplace_back("fewer than three steps");
}

}  // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mx = mean(x), my = mean(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double kendall(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0, pairs = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = i + 1; j < a.size(); ++j, ++pairs) {
      const double product = (a[i] - a[j]) * (b[i] - b[j]);
      sum += product > 0 ? 1 : product < 0 ? -1 : 0;
    }
  return pairs > 0 ? sum / pairs : 0;
}

std::vector<TaskQuality> judge_tasks(const std::vector<ScoreRow>& rows) {
  std::vector<std::string> order;
  std::map<std::string, Curves> tasks;
  std::map<std::string, double> chance;
  for (const ScoreRow& r : rows) {
    if (!std::isfinite(r.score))
      fail("task '{}', arm '{}', step {}: the score is {}", r.task, r.arm, r.step, r.score);
    if (!tasks.contains(r.task)) order.push_back(r.task);
    if (!tasks[r.task][{r.arm, r.seed}].emplace(r.step, r.score).second)
      throw Error(
          fmt::format("task '{}', arm '{}', seed {} has step {} twice", r.task, r.arm, r.seed, r.step),
          "give each arm a name of its own, and each of its runs another seed");
    chance[r.task] = r.chance;
  }
  std::vector<TaskQuality> out;
  for (const std::string& name : order) {
    const Curves& curves = tasks[name];
    TaskQuality q{.task = name};
    std::set<int64_t> seeds, steps;
    for (const auto& [key, curve] : curves) {
      seeds.insert(key.second);
      for (const auto& [step, score] : curve) steps.insert(step);
    }
    const auto last = last_scores(curves);
    q.arms = static_cast<int64_t>(last.size()), q.seeds = static_cast<int64_t>(seeds.size());
    q.steps = static_cast<int64_t>(steps.size());
    q.monotonicity = monotonicity_of(curves);
    q.seed_noise = noise_of(curves);
    q.ranking = ranking_of(curves);
    std::vector<double> ends;
    for (const auto& [arm, scores] : last) ends.push_back(mean(scores));
    const double above = mean(ends) - chance[name];
    if (q.seed_noise) q.signal = *q.seed_noise > 0 ? above / *q.seed_noise : above > 0 ? INFINITY : 0;
    judge(q);
    out.push_back(std::move(q));
  }
  return out;
}

std::vector<ScoreRow> read_score_table(const std::string& text, const std::string& path) {
  std::vector<ScoreRow> rows;
  std::vector<std::string> heads;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string row = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.ends_with('\r')) row.pop_back();
    if (row.empty()) continue;
    std::vector<std::string> cells(1);
    for (const char c : row) {
      if (c == ',')
        cells.emplace_back();
      else
        cells.back() += c;
    }
    if (heads.empty()) {
      heads = cells;
      for (const char* needed : {"task", "arm", "seed", "step", "score"})
        if (std::find(heads.begin(), heads.end(), needed) == heads.end())
          throw Error(fmt::format("'{}' line 1 has no column '{}'", path, needed),
                      "the first line is: task,arm,seed,step,score,chance");
      continue;
    }
    if (cells.size() != heads.size())
      fail("'{}' line {} has {} cells, expected {}", path, line, cells.size(), heads.size());
    const auto number = [&](const std::string& cell, const std::string& head, auto& out) {
      const auto [last, error] = std::from_chars(cell.data(), cell.data() + cell.size(), out);
      if (error != std::errc() || last != cell.data() + cell.size())
        fail("'{}' line {}: '{}' is '{}', expected a number", path, line, head, cell);
    };
    ScoreRow r;
    for (size_t i = 0; i < heads.size(); ++i) {
      if (heads[i] == "task") r.task = cells[i];
      if (heads[i] == "arm") r.arm = cells[i];
      if (heads[i] == "seed") number(cells[i], heads[i], r.seed);
      if (heads[i] == "step") number(cells[i], heads[i], r.step);
      if (heads[i] == "score") number(cells[i], heads[i], r.score);
      if (heads[i] == "chance") number(cells[i], heads[i], r.chance);
    }
    rows.push_back(std::move(r));
  }
  if (rows.empty()) fail("'{}' has no scores", path);
  return rows;
}

}  // namespace ingot
