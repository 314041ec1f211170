// See problem_pool.h.
#include "post/rl/problem_pool.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

bool ProblemPool::empty() const {
  return std::all_of(kept_.begin(), kept_.end(), [](const auto& list) { return list.empty(); });
}

void ProblemPool::offer(size_t environment, const Entry& entry, const std::vector<double>& pass_rates,
                        double least, double most) {
  const bool fits = std::all_of(pass_rates.begin(), pass_rates.end(),
                                [&](double rate) { return rate >= least && rate <= most; });
  if (fits) kept_[environment].push_back(entry);
}

const ProblemPool::Entry& ProblemPool::problem(size_t environment, int64_t draw) const {
  const std::vector<Entry>& list = kept_[environment];
  INGOT_CHECK(!list.empty());
  return list[static_cast<size_t>(draw) % list.size()];
}

std::string ProblemPool::json() const {
  nlohmann::json j = nlohmann::json::array();
  for (const auto& list : kept_) {
    nlohmann::json one = nlohmann::json::array();
    for (const Entry& e : list) one.push_back({e.number, e.difficulty});
    j.push_back(one);
  }
  return j.dump();
}

void ProblemPool::restore(const std::string& json, const std::string& where) {
  try {
    const auto j = nlohmann::json::parse(json);
    if (j.size() != kept_.size())
      fail("{}: the pool of problems has {} environments, expected {}", where, j.size(), kept_.size());
    std::vector<std::vector<Entry>> kept;
    for (const auto& list : j) {
      std::vector<Entry>& one = kept.emplace_back();
      for (const auto& e : list) one.push_back({e.at(0), e.at(1)});
    }
    kept_ = std::move(kept);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: the pool of problems is damaged: {}", where, e.what());
  }
}

}  // namespace ingot
