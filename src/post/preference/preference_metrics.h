// What a step of a loss on pairs says in the metrics, wherever its pairs come from.
#pragma once
#include "post/objectives/preference_objective.h"
#include "report/metrics.h"
#include "train/engine.h"

namespace ingot {

/// preference/accuracy, margin, reward_*, tokens_*, logprob_* of a step, and drift_* where the loss has a
/// reference. A mean over nothing is left out.
void add_preference_metrics(const StepOutcome& outcome, bool has_reference, MetricRow& row);

}  // namespace ingot
