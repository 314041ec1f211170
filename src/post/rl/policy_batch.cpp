// See policy_batch.h.
#include "post/rl/policy_batch.h"

#include "base/error.h"
#include "data/sequence_rows.h"
#include "post/rl/advantage.h"
#include "post/rl/policy_loss.h"

namespace ingot {
namespace {

/// A reply behind its prompt, with what is said of each token; of the prompt nothing is.
struct PolicySequence {
  std::vector<int32_t> tokens, version;
  std::vector<uint8_t> in_loss;
  std::vector<float> weight, advantage, recorded, cotangent;

  PolicySequence(const RolloutGroup& group, const Rollout& rollout, double aggregation)
      : tokens(group.prompt) {
    const size_t prompt = tokens.size();
    tokens.insert(tokens.end(), rollout.ids.begin(), rollout.ids.end());
    version.assign(tokens.size(), 0);
    in_loss.assign(tokens.size(), 0);
    for (std::vector<float>* column : {&weight, &advantage, &recorded, &cotangent})
      column->assign(tokens.size(), 0);
    const auto w = static_cast<float>(aggregation), a = static_cast<float>(rollout.advantage);
    for (size_t t = 0; t < rollout.ids.size(); ++t) {
      const size_t at = prompt + t;
      version[at] = static_cast<int32_t>(rollout.weights);
      if (rollout.forced[t]) continue;
      in_loss[at] = 1;
      weight[at] = w, advantage[at] = a, recorded[at] = rollout.recorded[t];
      cotangent[at] = static_cast<float>(-static_cast<double>(w) * a);
    }
  }
  data::TokenSequence view() const {
    return {.tokens = tokens,
            .in_loss = in_loss,
            .weight = weight,
            .advantage = advantage,
            .recorded = recorded,
            .cotangent = cotangent,
            .version = version};
  }
};

}  // namespace

void set_advantages(RolloutGroup& group, AdvantageKind kind) {
  const std::vector<double> values = advantages(kind, group.rewards(), group.bonuses());
  size_t next = 0;
  for (Rollout& r : group.rollouts) r.advantage = r.left_out ? 0 : values[next++];
}

data::Batch policy_batch(const std::vector<RolloutGroup>& groups, const PolicyBatchShape& shape) {
  std::vector<int64_t> drawn;
  for (const RolloutGroup& g : groups)
    for (const Rollout& r : g.rollouts)
      if (!r.left_out) drawn.push_back(r.drawn());
  const AggregationWeights weights = aggregate(shape.aggregation, drawn, shape.constant);
  std::vector<PolicySequence> sequences;
  for (const RolloutGroup& g : groups)
    for (const Rollout& r : g.rollouts)
      if (!r.left_out) sequences.emplace_back(g, r, weights.weight[sequences.size()]);
  std::vector<data::TokenSequence> views;
  views.reserve(sequences.size());
  for (const PolicySequence& s : sequences) views.push_back(s.view());
  data::Batch batch =
      data::pack_sequences(views, {.budget = shape.sequence, .rows_multiple = shape.multiple});
  if (batch.valid_targets == 0)
    throw Error("rl: no token of the batch is in the loss: every reply is empty, forced or left out",
                "raise rl.thinking_tokens or rl.answer_tokens");
  batch.divisor = weights.divisor;
  return batch;
}

void replay_routes(const std::vector<RolloutGroup>& groups, int64_t layers, data::Batch& batch) {
  std::vector<std::vector<uint8_t>> rows;  // by sequence, as policy_batch() numbers them
  size_t width = 0;                        // of a row
  for (const RolloutGroup& g : groups)
    for (const Rollout& r : g.rollouts) {
      if (r.left_out) continue;
      std::vector<uint8_t>& mine = rows.emplace_back(g.routes);
      mine.insert(mine.end(), r.routes.begin(), r.routes.end());
      if (!r.ids.empty()) width = r.routes.size() / r.ids.size();
    }
  INGOT_CHECK(width > 0 && width % static_cast<size_t>(layers) == 0, "routes of {} numbers a row", width);
  const size_t k = width / static_cast<size_t>(layers), positions = batch.tokens.size();
  batch.routes.assign(static_cast<size_t>(layers), std::vector<int32_t>(positions * k));
  for (size_t at = 0; at < positions; ++at) {
    const int32_t sequence = batch.columns.sequence[at];
    const size_t row = static_cast<size_t>(batch.positions[at]) * width;
    const bool known = sequence >= 0 && row + width <= rows[static_cast<size_t>(sequence)].size();
    for (size_t i = 0; i < width; ++i) {
      const uint8_t id = known ? rows[static_cast<size_t>(sequence)][row + i] : static_cast<uint8_t>(i % k);
      batch.routes[i / k][at * k + i % k] = id == kSkippedExpert ? -1 : id;  // -1: a skip class
    }
  }
}

void replay_kept(const std::vector<RolloutGroup>& groups, data::Batch& batch) {
  struct Sequence {
    size_t prompt;
    const Rollout* reply;
    std::vector<int32_t> ends;  ///< of each id's share of reply->kept, within the batch's list
  };
  std::vector<Sequence> sequences;  // as policy_batch() numbers them
  batch.allowed_ids.clear(), batch.allowed.clear();
  for (const RolloutGroup& g : groups)
    for (const Rollout& r : g.rollouts) {
      if (r.left_out) continue;
      Sequence& s = sequences.emplace_back(Sequence{g.prompt.size(), &r, {}});
      auto end = static_cast<int32_t>(batch.allowed_ids.size());
      for (const int32_t count : r.kept_counts) s.ends.push_back(end += count);
      batch.allowed_ids.insert(batch.allowed_ids.end(), r.kept.begin(), r.kept.end());
      INGOT_CHECK(batch.allowed_ids.size() == static_cast<size_t>(end) &&
                      (r.kept_counts.empty() || r.kept_counts.size() == r.ids.size()),
                  "{} tokens were drawn from {} lists of {} ids", r.ids.size(), r.kept_counts.size(),
                  r.kept.size());
    }
  if (batch.allowed_ids.empty()) return;
  batch.allowed.assign(2 * batch.targets.size(), 0);
  for (size_t at = 0; at < batch.targets.size(); ++at) {
    if (batch.targets[at] < 0) continue;
    const Sequence& s = sequences[static_cast<size_t>(batch.columns.sequence[at])];
    if (s.ends.empty()) continue;
    const size_t t = static_cast<size_t>(batch.positions[at]) + 1 - s.prompt;
    batch.allowed[2 * at] = s.ends[t] - s.reply->kept_counts[t];
    batch.allowed[2 * at + 1] = s.ends[t];
  }
}

void add_reference(std::vector<float> logprobs, double coefficient, data::Batch& batch) {
  INGOT_CHECK(logprobs.size() == batch.targets.size());
  data::TokenColumns& c = batch.columns;
  c.reference = std::move(logprobs);
  for (size_t at = 0; at < batch.targets.size(); ++at) {
    if (batch.targets[at] < 0) continue;
    const double away = reference_term(c.recorded[at], c.reference[at]).d_logprob;
    c.cotangent[at] = static_cast<float>(static_cast<double>(c.weight[at]) *
                                         (-static_cast<double>(c.advantage[at]) + coefficient * away));
  }
}

double fill_of(const data::Batch& batch) {
  int64_t used = 0;
  for (const data::DocumentPiece& p : batch.pieces)
    if (p.document >= 0) used += p.end - p.begin;
  return static_cast<double>(used) / static_cast<double>(batch.rows * batch.sequence_length);
}

}  // namespace ingot
