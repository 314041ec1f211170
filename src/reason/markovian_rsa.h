// Markovian recursive self-aggregation ([ZAYA1-8B] §IV-B3): a population of N rollouts, each of at most beta
// thinking tokens; T rounds in which each of N new rollouts reads the tails of C of the round before. What a
// rollout reads is bounded by the problem and C tails of tau tokens, however long the reasoning has become.
//   T = 0: N parallel samples.   C = 1: each chain refines its own tail.   tau = beta: recursive
//   self-aggregation of whole chains.
// compaction says what of a rollout the next one sees: tail, the last tau ids of its reasoning; pacore,
// the last tau ids of its answer (nothing where it did not finish); hybrid, the answer where it finished,
// else the tail.
//
// Everything is a function of weights, problems, options and keys: candidates by Philox of (key, round, j),
// tokens by the engine's own keys. One thread; the engine is used by nobody else meanwhile.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "infer/engine.h"
#include "reason/aggregate.h"
#include "reason/compaction.h"

namespace ingot::reason {

struct RsaOptions {
  int64_t population = 16;     ///< N
  int64_t candidates = 4;      ///< C, at most N
  int64_t rounds = 2;          ///< T
  int64_t budget = 128;        ///< beta: thinking tokens of a rollout
  int64_t tail = 32;           ///< tau, at most beta
  int64_t answer_tokens = 64;  ///< behind the thinking
  Compaction compaction = Compaction::tail;
  SamplingOptions sampling;
  std::optional<bool> enable_thinking = {};
};
/// Error that names the first option outside its range.
void validate(const RsaOptions& options);

/// What reasons: an engine with a tokenizer, the model's chat format, and the ids that end a turn.
struct Reasoner {
  Engine* engine = nullptr;
  const chat::ChatTemplate* chat = nullptr;
  std::vector<int32_t> stop_ids;
  AggregateTemplate aggregate = {};
};

struct ReasonProblem {
  chat::Conversation prompt;
  uint64_t key = 0;  ///< of its random numbers
};

struct Rollout {
  Ids ids;                ///< generated, the stop id left out
  Ids reasoning, answer;  ///< the ids inside the thinking without its marks, and those behind it
  std::string text;
  chat::Message reply;    ///< the text, parsed
  int64_t decoded = 0;    ///< generated tokens: forced ones and the stop id too
  bool finished = false;  ///< it ended by itself
};

struct RsaRound {
  std::vector<Rollout> rollouts;
  std::vector<std::vector<int64_t>> drawn;  ///< of each rollout: its candidates in the round before
  int64_t prompt_tokens = 0;                ///< sum over rollouts
  int64_t longest_prompt = 0;
  int64_t decoded = 0;
};

struct RsaResult {
  std::vector<RsaRound> rounds;
  /// Of prompts that show candidates, in tokens: the problem, the template and C tails of full length; 0
  /// where there are no such rounds.
  int64_t prompt_bound = 0;
  /// Tokens generated for the problem ([ZAYA1-8B] eq. 24): the sum over rounds of rollouts times their mean.
  int64_t decoded() const;
  const std::vector<Rollout>& last() const { return rounds.back().rollouts; }
};

/// One problem on its way, for callers that run the engine themselves: the requests of a round go to the
/// engine, the events of their samples come back here. Not thread-safe.
class RsaRun {
 public:
  /// `reasoner` must outlive it. Error: options outside their ranges.
  RsaRun(const Reasoner& reasoner, ReasonProblem problem, const RsaOptions& options);
  /// Once all samples of a round are finished: the requests of the next one, of N samples together; none
  /// after the last. Error: a context that does not hold a prompt with the budgets.
  std::vector<Request> next();
  void token(const TokenEvent& event);
  void finished(const Finished& finished);
  /// The rounds that are complete.
  RsaResult& result() { return result_; }
  /// A prompt with tails of full length: no prompt of the run is longer.
  int64_t longest_prompt() const;

 private:
  Request request(const AggregatePrompt& prompt, uint64_t key, int64_t first, int64_t n);
  void close_round();

  const Reasoner& reasoner_;
  const ReasonProblem problem_;
  const RsaOptions options_;
  const chat::ReplyFormat format_;
  RsaResult result_;
  RsaRound round_;
  Ids open_, close_;
  bool opened_ = false;
};

/// One result a problem, in order. Error: a context that does not hold a prompt with the budgets (what is
/// needed and what there is), and what the engine refuses.
std::vector<RsaResult> markovian_rsa(const Reasoner& reasoner, std::span<const ReasonProblem> problems,
                                     const RsaOptions& options);

/// Candidates of rollout j in round t, in order: C different ones of N; with C = 1 its own.
std::vector<int64_t> drawn_candidates(uint64_t seed, uint64_t key, int64_t round, int64_t rollout,
                                      const RsaOptions& options);

/// The first rollout that gives the answer which most of them give (final_answer() of their replies); the
/// first one where none has an answer.
size_t most_common_answer(std::span<const Rollout> rollouts);

/// What the next round sees of a rollout. Where there is no reasoning its answer stands for it.
Ids compacted(const Rollout& rollout, const RsaOptions& options, const Tokenizer& tokenizer);

}  // namespace ingot::reason
