// Rows that teach aggregation before there is a model whose rollouts could be shown: the candidates are a
// teacher's replies, some with a planted mistake (mistake.h). The same message from the same template as
// training_rows.h and markovian_rsa.h.
#pragma once
#include <string>

#include "environments/rows.h"
#include "reason/aggregate.h"
#include "reason/compaction.h"
#include "reason/training_rows.h"

namespace ingot::reason {

struct PlantedOptions {
  AggregationForm form = AggregationForm::messages;
  AggregationReply reply = AggregationReply::choice;  ///< of form `messages`
  int64_t candidates = 4;
  double right = 0.5;  ///< chance that a candidate is right
  int64_t tail = 48;   ///< bytes of a candidate's reasoning or answer that are shown, from its end
  Compaction compaction = Compaction::tail;
};
/// Error that names the first option outside its range.
void validate(const PlantedOptions& options);

/// Row `number` of the request (its `form` is not used), one line without its newline. A wrong candidate may
/// repeat the one before it, so a mistake can have the majority. Under the request's no_think the candidates
/// are answers, and the reply has no reasoning. Error: an environment without a teacher.
std::string planted_row(const AggregateTemplate& aggregate, const environments::RowRequest& request,
                        uint64_t number, const PlantedOptions& options);

}  // namespace ingot::reason
