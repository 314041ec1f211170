// What the engine keeps of a request and of each of its samples. For the files of the engine only.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine.h"
#include "infer/stop_strings.h"
#include "infer/thinking.h"

namespace ingot {

struct Engine::RequestState {
  RequestId id = 0;
  Request request;
  Sink sink;
  int64_t left = 0;  ///< samples that have not finished
};

/// The text of a sample as it can be shown.
class SampleText {
 public:
  SampleText(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : decoder_(tokenizer), stops_(stops) {}
  std::string push(int32_t id) { return stops_.push(decoder_.push(id)); }
  bool stopped() const { return stops_.found(); }
  std::string finish() {
    std::string rest = stops_.push(decoder_.finish());
    return rest + stops_.finish();
  }

 private:
  StreamDecoder decoder_;
  StopStrings stops_;
};

/// One sequence of tokens: known ones in `ids`, of which `state` has cached the first.
struct Engine::Sample {
  std::shared_ptr<RequestState> request;
  int64_t number = 0;
  std::vector<int32_t> ids;  ///< the prompt, then what was drawn
  std::optional<SequenceState> state;
  uint64_t weights = 0;    ///< version that the state began with
  int64_t kept_pages = 0;  ///< pages that are in the prefix cache
  int64_t own_rows = 0;    ///< rows computed since the state began
  bool forked = false;     ///< the request's samples have places of their own
  bool counted = false;    ///< of the prefix cache's hits
  bool scored = false;     ///< the prompt's scores were sent
  bool done = false;
  ThinkingState thinking;
  std::optional<SampleText> text;
  Usage usage;
  std::vector<float> logprobs;                ///< of the prompt, as far as it is computed
  std::vector<uint16_t> routes, last_routes;  ///< of the prompt's rows; of the last row
  int64_t routed = 0;                         ///< rows whose routes were seen
  std::vector<std::vector<TokenProbability>> tops;

  Sample(std::shared_ptr<RequestState> of, const std::optional<Tokenizer>& tokenizer)
      : request(std::move(of)),
        number(asked().first_sample),
        ids(asked().prompt),
        thinking(asked().thinking) {
    if (tokenizer) text.emplace(*tokenizer, asked().stop_strings);
    forked = asked().n == 1 || asked().max_tokens == 0;
    scored = asked().report.prompt_from < 0 && !asked().report.routes;
    usage.prompt_tokens = prompt_tokens();
  }
  /// Sample i of the request, before any token was drawn.
  std::unique_ptr<Sample> fork(int64_t i, const std::optional<Tokenizer>& tokenizer) const {
    auto copy = std::make_unique<Sample>(request, tokenizer);
    copy->number += i;
    copy->forked = copy->scored = copy->counted = true;
    copy->usage = usage;
    copy->last_routes = last_routes, copy->routed = routed;
    copy->weights = weights, copy->kept_pages = kept_pages, copy->own_rows = own_rows;
    if (state) copy->state.emplace(state->fork());
    return copy;
  }

  const Request& asked() const { return request->request; }
  int64_t prompt_tokens() const { return static_cast<int64_t>(asked().prompt.size()); }
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  bool begun() const { return own_rows > 0; }
  /// Tokens whose rows are needed: not the last of a prompt that is only scored.
  int64_t wanted() const { return tokens() - (asked().max_tokens == 0 ? 1 : 0); }
  int64_t pending() const { return done ? 0 : wanted() - (state ? state->tokens() : 0); }
  /// First token of the prompt that is still to be scored; the number of tokens if none is.
  int64_t score_from() const {
    const int64_t from = asked().report.prompt_from;
    return scored || from < 0 ? tokens() : std::max<int64_t>(1, from);
  }
  /// Tokens whose rows nobody needs: at most all but the one before the next token.
  int64_t reusable_tokens() const {
    const int64_t needed = std::min(tokens(), score_from()) - 1;
    return asked().report.routes ? std::min(needed, routed) : needed;
  }
  int64_t output() const { return tokens() - prompt_tokens(); }
  /// What was computed is forgotten, and recomputed later.
  void drop_state() {
    state.reset();
    kept_pages = own_rows = 0;
    if (!scored) logprobs.clear(), tops.clear(), routes.clear(), routed = 0;
  }
};

/// Some rows of a sample in a call.
struct Engine::Member {
  size_t sample = 0;
  int64_t rows = 0;
  int64_t first_row = 0, past = 0;
};

struct Engine::Call {
  std::vector<Member> members;
  BatchLayout rows;
  std::vector<int32_t> ids, positions;
};

}  // namespace ingot
