// See run_samples.h.
#include "train/run_samples.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "infer/engine.h"
#include "train/rank_logits.h"

namespace ingot {
namespace {

/// With a cache.
std::vector<int32_t> sample_alone(const Model& model, int64_t vocab, const Request& request) {
  EngineOptions options;
  options.vocab = vocab;
  Engine engine(model, {}, options);
  std::vector<int32_t> ids;
  std::optional<Error> error;
  engine.submit(request, {.token =
                              [&](const TokenEvent& e) {
                                if (!e.stop) ids.push_back(e.id);
                              },
                          .finished =
                              [&](const Finished& f) {
                                if (f.reason == FinishReason::failed) error = Error(f.error, f.hint);
                              }});
  engine.run_until_idle();
  if (error) throw *error;
  return ids;
}

/// By the ranks that each hold a part of the model.
std::vector<int32_t> sample_together(const TrainEngine& engine, int64_t vocab, const Request& request) {
  RankLogits logits(engine.model(), engine.step_ranks());
  std::vector<int32_t> ids;
  RowDraw draw;
  draw.sampling = request.sampling, draw.vocab = vocab;
  draw.stream = sampling_stream(request.key, 0);
  std::vector<float> last = logits.after(request.prompt);
  for (draw.position = request.prompt.size(); static_cast<int64_t>(ids.size()) < request.max_tokens;
       ++draw.position) {
    draw.logits = last;
    const DrawnToken drawn = draw_token(draw);
    if (drawn.error) throw *drawn.error;
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), drawn.id) != request.stop_ids.end())
      break;
    ids.push_back(drawn.id);
    if (static_cast<int64_t>(draw.position) >= engine.model().config().context) break;
    if (static_cast<int64_t>(ids.size()) < request.max_tokens) last = logits.after({&drawn.id, 1});
  }
  return ids;
}

SamplePrompt given_prompt(const Recipe& recipe, const Tokenizer& tokenizer, size_t i) {
  SamplePrompt prompt{(*recipe.samples.prompts)[i], {}};
  try {
    prompt.ids = tokenizer.encode(prompt.text, encode_options(recipe.data));
  } catch (const Error& e) {
    throw Error(fmt::format("samples.prompts.{}: {}", i, e.what()),
                "set samples.prompts to texts that the tokenizer knows");
  }
  const int64_t begin = document_tokens(recipe.data, tokenizer).begin ? 1 : 0;
  if (static_cast<int64_t>(prompt.ids.size()) + begin >= recipe.model.context)
    fail("samples.prompts.{} has {} tokens, which leaves no space in model.context = {}", i,
         prompt.ids.size(), recipe.model.context);
  return prompt;
}

/// The first four words of a line, the second line where the first is a title. A word that is cut off is left
/// out; text without spaces stays whole.
std::string first_words(const std::string& text) {
  size_t begin = 0;
  if (const size_t line = text.find('\n'); line != std::string::npos) {
    const size_t second = text.find_first_not_of(" \n", line);
    if (second != std::string::npos && text.find(' ', second) != std::string::npos) begin = second;
  }
  size_t end = begin;
  for (int words = 0; words < 4; ++words) {
    const size_t space = text.find_first_of(" \n", end + 1);
    if (space == std::string::npos) break;
    end = space;
    if (text[space] == '\n') break;
  }
  return end > begin ? text.substr(begin, end - begin) : text;
}

/// The beginning of a document: all that the loss leaves out, or its first words.
SamplePrompt document_prompt(const DataConfig& data, const Tokenizer& tokenizer,
                             const data::TokenSplit& split, int64_t document, int64_t context) {
  const int64_t begin = split.document_begin(document), end = split.document_begin(document + 1);
  int64_t count = std::min<int64_t>({24, end - begin, context / 2});
  if (split.prompts())
    for (count = 0; begin + count < end && count < context / 2 && !split.in_loss(begin + count);) ++count;
  SamplePrompt prompt{{}, std::vector<int32_t>(static_cast<size_t>(count))};
  split.read(begin, prompt.ids);
  const auto first = document_tokens(data, tokenizer).begin;  // continue_sample() puts it there
  if (first && !prompt.ids.empty() && prompt.ids.front() == *first) prompt.ids.erase(prompt.ids.begin());
  if (!split.prompts()) std::erase(prompt.ids, static_cast<int32_t>(split.eos()));
  StreamDecoder decoder(tokenizer);
  for (const int32_t id : prompt.ids) prompt.text += decoder.push(id);
  if (split.prompts()) return prompt;
  prompt.text = first_words(prompt.text);
  prompt.ids = tokenizer.encode(prompt.text, encode_options(data));
  return prompt;
}

/// Not a table or code, as far as the first words show.
bool is_words(const std::string& text) {
  return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] < 0) &&
         text.find(' ') != std::string::npos && text.find('\n') == std::string::npos;
}

}  // namespace

std::vector<SamplePrompt> sample_prompts(const Recipe& recipe, const PreparedData& data) {
  std::vector<SamplePrompt> prompts;
  if (recipe.samples.prompts) {
    for (size_t i = 0; i < recipe.samples.prompts->size(); ++i)
      prompts.push_back(given_prompt(recipe, data.tokenizer, i));
    return prompts;
  }
  if (recipe.model.moe.experts > 0 && recipe.model.moe.selection == AssignRule::expert_choice) return prompts;
  const size_t sources = data.sources.size();
  for (size_t i = 0; i < 3 && sources > 0; ++i) {
    const data::Dataset& source = data.sources[i % sources];
    const auto split = source.has_split("validation") ? source.validation() : source.train();
    const auto part =
        static_cast<int64_t>(i / sources) + 2;  // the documents in the middle, at a third, at a quarter
    if (split->documents() == 0) continue;
    SamplePrompt prompt;
    for (int64_t d = split->documents() / part, tries = 16; tries > 0 && d < split->documents();
         ++d, --tries) {
      prompt = document_prompt(recipe.data, data.tokenizer, *split, d, recipe.model.context);
      const bool again = std::any_of(prompts.begin(), prompts.end(),
                                     [&](const SamplePrompt& other) { return other.text == prompt.text; });
      if (!again && (split->prompts() || is_words(prompt.text))) break;
    }
    if (!prompt.ids.empty()) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::optional<std::string> continue_sample(TrainEngine& engine, const PreparedData& data,
                                           const SamplePrompt& prompt, size_t i) {
  const Recipe& recipe = engine.recipe();
  const auto eos = data.tokenizer.roles().eos, begin = document_tokens(recipe.data, data.tokenizer).begin;
  std::vector<int32_t> ids = prompt.ids;
  if (begin || (ids.empty() && eos)) ids.insert(ids.begin(), begin ? *begin : *eos);
  if (ids.empty()) return std::nullopt;
  Request r;
  r.sampling.temperature = recipe.samples.temperature;
  r.sampling.top_p = recipe.samples.top_p;
  r.sampling.seed = static_cast<uint64_t>(recipe.run.seed) + i;
  r.max_tokens =
      std::min(recipe.samples.tokens, engine.model().config().context - static_cast<int64_t>(ids.size()));
  if (eos) r.stop_ids = {*eos};
  r.prompt = std::move(ids);
  const bool alone = engine.ranks().groups().tensor().size() * engine.pipeline().stages() == 1;
  return data.tokenizer.decode(alone ? sample_alone(engine.model(), data.vocab, r)
                                     : sample_together(engine, data.vocab, r));
}

}  // namespace ingot
