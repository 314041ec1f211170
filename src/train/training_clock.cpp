// See training_clock.h.
#include "train/training_clock.h"

#include <cmath>
#include <sstream>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kTarget = "target/", kSeconds = "/training_seconds";

}  // namespace

std::string TrainingClock::state_of(const std::vector<MetricRow>& rows) {
  double seconds = 0;
  std::string reached;
  for (const MetricRow& row : rows) {
    if (const double* s = row.scalar("training_seconds")) seconds = *s;
    for (const auto& [name, value] : row.scalars)
      if (name.starts_with(kTarget) && name.ends_with(kSeconds))
        reached += name.substr(kTarget.size(), name.size() - kTarget.size() - kSeconds.size()) + "\n";
  }
  return fmt::format("{}\n{}", seconds, reached);
}

void TrainingClock::restore(const std::string& state) {
  std::istringstream lines(state);
  std::string line;
  std::getline(lines, line);
  seconds_ = std::stod(line);
  reached_.clear();
  while (std::getline(lines, line)) reached_.insert(line);
}

void TrainingClock::count(double step_seconds, MetricRow& row) {
  seconds_ += step_seconds;
  row.set("training_seconds", seconds_);
}

bool TrainingClock::reaches(const PhaseConfig& phase, MetricRow& row) {
  if (phase.target_loss <= 0) return false;
  const double* loss = row.scalar(fmt::format("val/{}/loss", phase.target_source));
  if (loss == nullptr || !(*loss <= phase.target_loss) || !reached_.insert(phase.name).second) return false;
  row.set(fmt::format("{}{}{}", kTarget, phase.name, kSeconds), seconds_);
  return true;
}

const PhaseConfig* TrainingClock::ended_by(const std::vector<PhaseConfig>& phases) const {
  for (const PhaseConfig& phase : phases)
    if (phase.target_ends && reached_.contains(phase.name)) return &phase;
  return nullptr;
}

}  // namespace ingot
