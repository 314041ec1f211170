// Phases of kind "preference": pairs of answers, packed whole, both sequences of a pair in one row.
#pragma once
#include "train/phase_kind.h"

namespace ingot {

PhaseKind preference_kind();

}  // namespace ingot
