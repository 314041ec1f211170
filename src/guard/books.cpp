// See books.h.
#include "guard/books.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace ingot::guard {
namespace {

constexpr size_t kStretches = 2048;  ///< of training that stay apart; older ones are joined in pairs

}  // namespace

void Books::spend(Cause cause, int64_t until_ms) {
  if (until_ms <= until_) return;
  spent_[static_cast<size_t>(cause)] += until_ms - until_;
  until_ = until_ms;
}

void Books::train(int64_t until_ms, int64_t step) {
  const int64_t ms = until_ms - until_, from = step_;
  step_ = std::max(step, from);
  if (ms <= 0) return;
  spend(Cause::kept, until_ms);
  if (step_ == from) return;  // no step ended in it
  recent_.push_back({ms, from, step_});
  if (recent_.size() <= kStretches) return;
  for (size_t i = 0; i < kStretches / 2; ++i) {
    const Training &a = recent_[2 * i], &b = recent_[2 * i + 1];
    recent_[i] = {a.ms + b.ms, a.from, b.to};
  }
  recent_.erase(recent_.begin() + kStretches / 2, recent_.begin() + kStretches);
}

void Books::fall_back(int64_t step) {
  lost_steps_ += std::max<int64_t>(0, step_ - step);
  int64_t lost = 0;
  while (!recent_.empty() && recent_.back().to > step) {
    Training& t = recent_.back();
    const int64_t steps = t.to - std::max(step, t.from);
    const int64_t part = t.ms / (t.to - t.from) * steps + t.ms % (t.to - t.from) * steps / (t.to - t.from);
    lost += part;
    t.ms -= part;
    t.to -= steps;
    if (t.to <= t.from) recent_.pop_back();
  }
  spent_[static_cast<size_t>(Cause::kept)] -= lost;
  spent_[static_cast<size_t>(Cause::lost)] += lost;
  step_ = std::min(step, step_);
}

void Books::count_fault(const std::string& rule, double detect_seconds, double recover_seconds,
                        int64_t lost_steps) {
  Faults& f = faults_[rule];
  ++f.count;
  f.detect_seconds += detect_seconds;
  f.recover_seconds += recover_seconds;
  f.lost_steps += lost_steps;
}

double Books::goodput() const {
  return total_ms() == 0 ? 1 : static_cast<double>(of_ms(Cause::kept)) / static_cast<double>(total_ms());
}

std::string Books::json() const {
  nlohmann::ordered_json j{{"format", 1}, {"begin_ms", begin_}, {"until_ms", until_}};
  for (const auto& c : enum_names(Cause{})) j["causes_ms"][c.name] = of_ms(c.value);
  j["goodput"] = goodput();
  j["step"] = step_;
  j["lost_steps"] = lost_steps_;
  j["faults"] = nlohmann::ordered_json::object();
  for (const auto& [rule, f] : faults_)
    j["faults"][rule] = {{"count", f.count},
                         {"detect_seconds", f.detect_seconds},
                         {"recover_seconds", f.recover_seconds},
                         {"lost_steps", f.lost_steps}};
  j["recent"] = nlohmann::ordered_json::array();
  for (const Training& t : recent_) j["recent"].push_back({t.ms, t.from, t.to});
  return j.dump();
}

Books Books::parse(const std::string& text) {
  try {
    const auto j = nlohmann::json::parse(text);
    Books b(j.at("begin_ms").get<int64_t>());
    b.until_ = j.at("until_ms").get<int64_t>();
    for (const auto& c : enum_names(Cause{}))
      b.spent_[static_cast<size_t>(c.value)] = j.at("causes_ms").at(c.name).get<int64_t>();
    b.step_ = j.at("step").get<int64_t>();
    b.lost_steps_ = j.at("lost_steps").get<int64_t>();
    for (const auto& [rule, f] : j.at("faults").items())
      b.faults_[rule] = {f.at("count").get<int64_t>(), f.at("lost_steps").get<int64_t>(),
                         f.at("detect_seconds").get<double>(), f.at("recover_seconds").get<double>()};
    for (const auto& t : j.at("recent"))
      b.recent_.push_back({t.at(0).get<int64_t>(), t.at(1).get<int64_t>(), t.at(2).get<int64_t>()});
    for (const Training& t : b.recent_)
      if (t.ms < 0 || t.from >= t.to) fail("the books have a stretch of training that took no step");
    if (std::accumulate(b.spent_.begin(), b.spent_.end(), int64_t{0}) != b.total_ms())
      fail("the books do not add up to the time they cover");
    return b;
  } catch (const nlohmann::json::exception& e) {
    fail("the books are damaged: {}", e.what());
  }
}

}  // namespace ingot::guard
