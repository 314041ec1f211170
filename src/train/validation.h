// Validation during a run: the loss over held-out windows of a source, shared by all ranks.
#pragma once
#include <functional>
#include <optional>

#include "data/dataset.h"
#include "train/engine.h"

namespace ingot {

struct ValidationScore {
  double loss = 0;           ///< mean of -logprob over valid targets
  double bits_per_byte = 0;  ///< of the text
  double tokens = 0;         ///< valid targets
};

/// Windows as long as the phase's sequences, `max_tokens` tokens of them (0: all). Called by all ranks, which
/// end with the same numbers. Nothing where `stops`, asked between batches, says so on all ranks.
std::optional<ValidationScore> validate(TrainEngine& engine, const data::Dataset& source,
                                        const PhaseConfig& phase, int64_t max_tokens,
                                        const std::function<bool()>& stops);

}  // namespace ingot
