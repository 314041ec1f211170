// Text that a run writes to show what its model has learned: continuations of samples.prompts.
#pragma once
#include "train/engine.h"
#include "train/prepare.h"

namespace ingot {

/// Throws Error for a prompt that the tokenizer does not know or that fills the model's context.
void require_prompts(const Recipe& recipe, const Tokenizer& tokenizer);

/// Prompt i and its continuation; nothing where the prompt is empty and has no token to start from. Called by
/// all ranks, which get the same text.
std::optional<std::string> continue_sample(TrainEngine& engine, const PreparedData& data, size_t i);

}  // namespace ingot
