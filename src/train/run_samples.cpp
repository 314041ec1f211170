// See run_samples.h.
#include "train/run_samples.h"

#include "infer/generator.h"
#include "train/rank_logits.h"

namespace ingot {
namespace {

/// With a cache.
std::vector<int32_t> sample_alone(const Model& model, std::span<const int32_t> prompt,
                                  const GenerateOptions& options) {
  Generator generator(model);
  SequenceState sequence = generator.new_sequence();
  return generator.generate(sequence, prompt, options);
}

/// By the ranks that each hold a part of the model.
std::vector<int32_t> sample_together(const TrainEngine& engine, std::span<const int32_t> prompt,
                                     const GenerateOptions& options) {
  RankLogits logits(engine.model(), engine.step_ranks());
  std::vector<float> last;
  return continue_prompt(
      engine.model().config(), 0, prompt, options,
      [&](std::span<const int32_t> tokens) -> std::span<const float> { return last = logits.after(tokens); });
}

}  // namespace

void require_prompts(const Recipe& recipe, const Tokenizer& tokenizer) {
  for (size_t i = 0; i < recipe.samples.prompts.size(); ++i) {
    const std::string& prompt = recipe.samples.prompts[i];
    size_t tokens = 0;
    try {
      tokens = tokenizer.encode(prompt).size();
    } catch (const Error& e) {
      throw Error(fmt::format("samples.prompts.{}: {}", i, e.what()),
                  "set samples.prompts to texts that the tokenizer knows");
    }
    if (static_cast<int64_t>(tokens) >= recipe.model.context)
      fail("samples.prompts.{} has {} tokens, which leaves no space in model.context = {}", i, tokens,
           recipe.model.context);
  }
}

std::optional<std::string> continue_sample(TrainEngine& engine, const PreparedData& data, size_t i) {
  const Recipe& recipe = engine.recipe();
  const std::string& prompt = recipe.samples.prompts[i];
  const auto eos = data.tokenizer.roles().eos;
  std::vector<int32_t> ids = data.tokenizer.encode(prompt);
  if ((ids.empty() || recipe.data.end_of_text_first) && eos) ids.insert(ids.begin(), *eos);
  if (ids.empty()) return std::nullopt;
  GenerateOptions o;
  o.sampling.temperature = recipe.samples.temperature;
  o.sampling.top_p = recipe.samples.top_p;
  o.sampling.seed = static_cast<uint64_t>(recipe.run.seed) + i;
  o.vocab = data.vocab;
  o.max_tokens =
      std::min(recipe.samples.tokens, engine.model().config().context - static_cast<int64_t>(ids.size()));
  if (eos) o.stop_ids = {*eos};
  const bool alone = engine.ranks().groups().tensor().size() * engine.pipeline().stages() == 1;
  return prompt + data.tokenizer.decode(alone ? sample_alone(engine.model(), ids, o)
                                              : sample_together(engine, ids, o));
}

}  // namespace ingot
