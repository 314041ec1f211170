// See policy_batch.h.
#include "post/rl/policy_batch.h"

#include "base/error.h"
#include "data/sequence_rows.h"
#include "post/rl/advantage.h"

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
  std::vector<std::vector<uint16_t>> rows;  // by sequence, as policy_batch() numbers them
  size_t width = 0;                         // of a row
  for (const RolloutGroup& g : groups)
    for (const Rollout& r : g.rollouts) {
      if (r.left_out) continue;
      std::vector<uint16_t>& mine = rows.emplace_back(g.routes);
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
      const uint16_t id = known ? rows[static_cast<size_t>(sequence)][row + i] : static_cast<uint16_t>(i % k);
      batch.routes[i / k][at * k + i % k] = id == 0xFFFF ? -1 : id;  // -1: a skip class
    }
  }
}

double fill_of(const data::Batch& batch) {
  int64_t used = 0;
  for (const data::DocumentPiece& p : batch.pieces)
    if (p.document >= 0) used += p.end - p.begin;
  return static_cast<double>(used) / static_cast<double>(batch.rows * batch.sequence_length);
}

}  // namespace ingot
