// Text that a run writes to show what its model has learned: continuations of samples.prompts, or of the
// beginnings of documents of its own text.
#pragma once
#include "train/engine.h"
#include "train/prepare.h"

namespace ingot {

/// What a sample continues.
struct SamplePrompt {
  std::string text;
  std::vector<int32_t> ids;
};

/// samples.prompts. Where none are given: of three documents, of the validation text if there is some, the
/// first words, or what is masked from the loss. The same on all ranks. Throws Error for a prompt that the
/// tokenizer does not know or that fills the model's context.
std::vector<SamplePrompt> sample_prompts(const Recipe& recipe, const PreparedData& data);

/// What the model writes after prompt number i; nothing where the prompt is empty and has no token to start
/// from. Called by all ranks, which get the same text.
std::optional<std::string> continue_sample(TrainEngine& engine, const PreparedData& data,
                                           const SamplePrompt& prompt, size_t i);

}  // namespace ingot
