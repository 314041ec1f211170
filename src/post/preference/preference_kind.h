// Kinds of phases that learn from pairs of answers, both sequences of a pair in one row: "preference" from
// prepared rows, "own_preference" from replies that the model gives where the phase begins (own_pairs.h).
#pragma once
#include "train/phase_kind.h"

namespace ingot {

PhaseKind preference_kind();
PhaseKind own_preference_kind();

}  // namespace ingot
