// See planted_rows.h.
#include "reason/planted_rows.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "reason/mistake.h"

namespace ingot::reason {
namespace {

using environments::DrawnProblem;
using environments::TraceStyle;

/// The end of a text of at most `most` bytes, in whole characters.
std::string end_of(const std::string& text, int64_t most) {
  size_t begin = text.size() - std::min(text.size(), static_cast<size_t>(most));
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return text.substr(begin);
}

/// The candidates of a row, one after the other.
class PlantedCandidates {
 public:
  PlantedCandidates(const DrawnProblem& drawn, uint64_t seed, const PlantedOptions& options)
      : drawn_(drawn), seed_(seed), options_(options) {}

  Candidate next() {
    const Random random = stream(all_.size());
    const bool right = static_cast<double>(random.uniform(0)) < options_.right;
    if (!right && wrong_ < all_.size() && random.below(1, 2) == 0) return add(all_[wrong_]);
    const environments::Environment& environment = *drawn_.mix->environment;
    chat::Message reply =
        teachers_reply(environment, drawn_.problem, stream(1000 + all_.size()), drawn_.style);
    if (!right)
      if (auto spoiled = with_mistake(environment, drawn_.problem, reply, shows_reasoning(reply),
                                      stream(2000 + all_.size())))
        reply = std::move(*spoiled);
    const environments::Verdict verdict = environment.judge(drawn_.problem, reply);
    const std::string text = shows_reasoning(reply) ? *reply.reasoning_content : reply.content.value_or("");
    return add({end_of(text, options_.tail), verdict.answer, verdict.reward >= 1});
  }

 private:
  bool shows_reasoning(const chat::Message& reply) const {
    return options_.compaction == Compaction::tail && !reply.reasoning_content.value_or("").empty();
  }
  Candidate add(Candidate made) {
    if (!made.right) wrong_ = all_.size();
    all_.push_back(made);
    return made;
  }
  Random stream(uint64_t which) const {
    return {seed_, RandomPurpose::environment,
            hash64(fmt::format("planted {} {}", drawn_.problem.id(), which))};
  }

  const DrawnProblem& drawn_;
  uint64_t seed_;
  const PlantedOptions& options_;
  std::vector<Candidate> all_;
  size_t wrong_ = SIZE_MAX;  ///< the last wrong one
};

}  // namespace

void validate(const PlantedOptions& o) {
  if (o.candidates < 1 || o.candidates > 1000)
    fail("the number of candidates is {}, expected 1 to 1000", o.candidates);
  if (!(o.right >= 0 && o.right <= 1)) fail("the share of right candidates is {}, expected 0 to 1", o.right);
  if (o.tail < 1) fail("the tail is {}, expected at least 1", o.tail);
}

std::string planted_row(const AggregateTemplate& aggregate, const environments::RowRequest& request,
                        uint64_t number, const PlantedOptions& options) {
  validate(options);
  const DrawnProblem drawn = environments::drawn_problem(request, number);
  PlantedCandidates planted(drawn, request.seed, options);
  std::vector<Candidate> candidates;
  for (int64_t i = 0; i < options.candidates; ++i) candidates.push_back(planted.next());
  chat::Conversation problem = drawn.problem.prompt;
  if (drawn.no_think)
    problem.messages.insert(problem.messages.begin(), chat::text_message("system", "/no_think"));
  if (options.form == AggregationForm::prompts)
    return aggregation_prompt_row(aggregate, problem, candidates, drawn.problem.id());
  const Random random(request.seed, RandomPurpose::environment, hash64("planted " + drawn.problem.id()));
  const chat::Message teacher =
      teachers_reply(*drawn.mix->environment, drawn.problem, random,
                     drawn.style == TraceStyle::slips ? TraceStyle::checked : drawn.style);
  chat::Conversation example = aggregation_example(aggregate, problem, candidates, teacher, options.reply);
  if (drawn.no_think) example.messages.back().reasoning_content.reset();
  return chat::write_conversation(example);
}

}  // namespace ingot::reason
