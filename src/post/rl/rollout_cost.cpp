// See rollout_cost.h.
#include "post/rl/rollout_cost.h"

#include <algorithm>

#include "infer/call_cost.h"
#include "infer/engine.h"

namespace ingot {
namespace {

/// Rows of a call of the engine.
int64_t call_rows() {
  return EngineOptions().token_budget;
}

/// Tokens of a prompt and its reply.
int64_t longest_sequence(const PhaseConfig& phase) {
  return std::min(phase.sequence, phase.rl->max_tokens + phase.rl->max_tokens / 4);
}

/// Replies that one engine draws, from one batch or one environment's pool.
int64_t replies(const RlConfig& c) {
  const int64_t modes = c.thinking == RolloutThinking::mixed ? 2 : 1;
  return std::max(c.prompts * c.samples, c.filter.pool * c.filter.samples * modes);
}

/// Keys and values stay cached after a reply ends, for prompts that begin alike, until the cache is full.
int64_t cache_bytes(const Model& model, const PhaseConfig& phase) {
  const int64_t page = SequenceStore(sequence_layout(model), 0).page_bytes();
  const int64_t wanted = replies(*phase.rl) * SequenceStore::pages_for(longest_sequence(phase)) * page;
  return std::min(wanted, std::max(page, phase.rl->cache_mib << 20));
}

}  // namespace

SourceCost rollout_cost(const Model& model, const PhaseConfig& phase) {
  const RlConfig& c = *phase.rl;
  const ModelConfig& m = model.config();
  const int64_t drawn = std::min(call_rows(), replies(c)), logits = m.head_rows() * 4;
  const CallCost call = call_cost(model, call_rows());
  const int64_t engine = cache_bytes(model, phase) + call.bytes + drawn * logits;
  const auto layers = static_cast<int64_t>(model.decoder().moe_layers().size());
  const bool routes = c.updates_per_batch > 1 && layers > 0;
  // Of a token of a reply: id, log-probability, mark; of a batch's position: tokens, targets, positions,
  // seven columns. Twice, since sequences are made before they are packed.
  const int64_t per_token = 16 + 2 * 40 + (routes ? layers * m.moe.top_k * (2 + 4) : 0);
  SourceCost cost;
  cost.bytes = engine + replies(c) * longest_sequence(phase) * per_token;
  const int64_t reply = c.reply_tokens > 0 ? c.reply_tokens : c.max_tokens;
  const auto tokens = static_cast<double>(c.prompts * c.samples * reply),
             prompts = static_cast<double>(c.prompts * (reply / 4)),
             head = 2 * static_cast<double>(m.head_rows() * m.width);
  // A token attends to those before it, whether they are cached or stand in one row.
  const double token = call_cost(model, std::min(phase.sequence, reply + reply / 4)).flops;
  cost.flops = ((tokens + prompts) * token + tokens * head) /
               (c.signal_share * static_cast<double>(c.updates_per_batch));
  if (c.kl_reference == 0) return cost;
  // One row at a time; a chunk of logits of the head (ops/head).
  const CallCost reference = call_cost(model, phase.sequence);
  cost.bytes += std::max<int64_t>(0, reference.bytes + (int64_t{32} << 20) - engine) + model.bytes();
  cost.flops += (tokens + prompts * static_cast<double>(c.samples)) * (reference.flops + head) /
                static_cast<double>(c.updates_per_batch);
  return cost;
}

}  // namespace ingot
