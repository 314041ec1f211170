// Another rope scaling for a trained model: what --rope-scaling of generate, chat and eval makes of its
// configuration. The weights stay as they are.
#pragma once
#include <string>

#include "exchange/stored_model.h"

namespace ingot {

/// `option`: "yarn:4", "linear:2", "llama3:8" (a kind of model.rope_scaling and its factor), or "none". The
/// context becomes `factor` times the tokens that the model was trained with: a run's longest phase, the
/// original_context of a model that is stretched that way already, else its context. It never shrinks; the
/// scaling's other values are the recipe's defaults. Throws Error for an option that is no kind and factor
/// above 1, and for a model that cannot be stretched: one without rotary positions, with frequencies of its
/// own, or trained with a scaling of another kind.
void stretch_rope(StoredModel& model, const std::string& option);

}  // namespace ingot
