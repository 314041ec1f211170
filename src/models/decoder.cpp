// See decoder.h.
#include "models/decoder.h"

#include <algorithm>
#include <cmath>

#include "nn/attention_registry.h"
#include "nn/tensor_region.h"
#include "ops/add/add.h"
#include "ops/collective/vocabulary.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/mix/mix.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {
namespace {

/// The part with the final norm, which merges the last layer's output.
int64_t final_norm_part(const ModelConfig& m) {
  return m.mtp.modules() > 0 ? m.layers : kHeadGroup;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config) : config_(config) {
  const ConfigNode tree = to_node(config_);
  ConfigErrors errors(tree);
  check_config(config_, errors);
  errors.throw_if_any();
  if (config.vocab < 1)
    fail("the model's vocab is {}; it must be set, or come from a tokenizer", config.vocab);
  const ShardRule by_token{ShardAxis::tensor, 0, {}, true};
  embed_ = table_.add({"embed.weight",
                       {config.tied ? config.head_rows() : config.vocab, config.width},
                       ParamRole::embedding,
                       Init::normal(config.init_std),
                       1,
                       {},
                       by_token});
  if (config.position == PositionKind::learned)
    positions_ = table_.add({"position_embed.weight",
                             {config.context, config.width},
                             ParamRole::embedding,
                             Init::normal(config.init_std)});
  if (config.residual == ResidualKind::scaled) {
    table_.begin_layer_group(config.embedding_norm ? kEmbeddingGroup : 0);
    input_scale_.stream_scale =
        table_.add({"input_scale.scale", {config.width}, ParamRole::scale, Init::constant(1)});
    input_scale_.stream_bias =
        table_.add({"input_scale.bias", {config.width}, ParamRole::scale, Init::constant(0)});
    table_.begin_layer_group(kEmbeddingGroup);
  }
  if (config.embedding_norm) embedding_norm_ = add_norm_params("embedding_norm");
  add_value_embeddings();
  for (int64_t l = 0; l < config.layers; ++l) {
    blocks_.push_back(make_block(l));
    if (blocks_.back().moe) moe_layers_.push_back(l);
  }
  for (int64_t k = 0; k < config.mtp.modules(); ++k) {
    mtp_modules_.push_back(make_mtp_module(config.layers + k));
    if (mtp_modules_.back().block.moe) moe_layers_.push_back(config.layers + k);
  }
  table_.begin_layer_group(final_norm_part(config));
  final_norm_ = add_norm_params("final_norm");
  table_.begin_layer_group(kHeadGroup);
  head_ = config.tied ? embed_
                      : table_.add({"lm_head.weight",
                                    {config.head_rows(), config.width},
                                    ParamRole::head,
                                    Init::normal(config.init_std),
                                    1,
                                    {},
                                    by_token});
  share_parameters();
  apply_init(config_, table_);
  add_adapters(config_.lora, table_);
}

void Decoder::share_parameters() {
  std::vector<int64_t> groups{kEmbeddingGroup};
  for (size_t k = 0; k < mtp_modules_.size(); ++k) groups.push_back(config_.layers + static_cast<int64_t>(k));
  if (config_.tied) groups.push_back(kHeadGroup);
  table_.set_layer_groups(embed_, groups);
  for (int64_t i = 0; i < config_.value_embeddings; ++i) {
    groups.clear();
    for (int64_t l = 0; l < config_.layers; ++l)
      if (config_.value_table(l) == i && config_.attends(l)) groups.push_back(l);
    if (!groups.empty()) table_.set_layer_groups(value_embeds_[static_cast<size_t>(i)], groups);
  }
}

Decoder::Norm Decoder::add_norm_params(const std::string& prefix) {
  Norm n;
  if (!config_.norm_weight) return n;
  n.weight = table_.add(
      {prefix + ".weight", {config_.width}, ParamRole::norm, Init::constant(1 - config_.norm_offset)});
  if (config_.norm_bias)
    n.bias = table_.add({prefix + ".bias", {config_.width}, ParamRole::norm, Init::constant(0)});
  return n;
}

int Decoder::add_scalar(const std::string& name, double value) {
  return table_.add({name, {1}, ParamRole::scale, Init::constant(value)});
}

void Decoder::add_value_embeddings() {
  for (int64_t i = 0; i < config_.value_embeddings; ++i)
    value_embeds_.push_back(table_.add({fmt::format("value_embed.{}.weight", i),
                                        {config_.vocab, config_.kv_heads * config_.key_width()},
                                        ParamRole::embedding,
                                        Init::normal(config_.init_std),
                                        1,
                                        {},
                                        {ShardAxis::tensor, 1, {}}}));
}

MergeIndices Decoder::add_merge_params(const std::string& prefix, int64_t part) {
  MergeIndices m;
  if (config_.residual == ResidualKind::plain) return m;
  const auto add = [&](const char* name, double value) {
    const int i = table_.add({prefix + name, {config_.width}, ParamRole::scale, Init::constant(value)});
    table_.set_layer_groups(i, {part});
    return i;
  };
  m.y_scale = add(".output_scale", 1);
  m.y_bias = add(".output_scale_bias", 0);
  m.stream_scale = add(".stream_scale", 1);
  m.stream_bias = add(".stream_scale_bias", 0);
  return m;
}

void Decoder::set_rope_theta(double theta) {
  config_.rope_theta = theta;
  for (size_t l = 0; l < blocks_.size(); ++l)
    if (blocks_[l].attention) blocks_[l].attention->set_rotary(config_.rotary_of(static_cast<int64_t>(l)));
  for (MtpModule& a : mtp_modules_) a.block.attention->set_rotary(config_.rotary_of(config_.layers - 1));
}

void Decoder::set_window(int64_t tokens) {
  config_.window = tokens;
  for (size_t l = 0; l < blocks_.size(); ++l)
    if (blocks_[l].attention) blocks_[l].attention->set_window(config_.window_of(static_cast<int64_t>(l)));
  for (MtpModule& a : mtp_modules_) a.block.attention->set_window(config_.window_of(config_.layers - 1));
}

std::unique_ptr<Attention> Decoder::make_attention(const std::string& prefix, int64_t layer) {
  if (const AttentionMaker* make = find_attention(config_.custom_attention))
    return (*make)(table_, prefix, config_, layer);
  if (config_.is_mla()) return std::make_unique<LatentAttention>(table_, prefix, config_, layer);
  return std::make_unique<GroupedAttention>(table_, prefix, config_, layer);
}

Decoder::Block Decoder::make_block(int64_t layer) {
  const std::string prefix = fmt::format("layers.{}", layer);
  const int64_t like = std::min(layer, config_.layers - 1);
  const int64_t behind = layer == config_.layers - 1 ? final_norm_part(config_)
                         : layer < config_.layers    ? layer + 1
                                                     : layer;
  table_.begin_layer_group(layer);
  Block b;
  if (config_.unet_skips && layer >= config_.layers / 2) b.skip_scale = add_scalar(prefix + ".skip_scale", 1);
  if (config_.input_mix)
    b.input_mix = {add_scalar(prefix + ".mix_scale.stream", 1), add_scalar(prefix + ".mix_scale.origin", 0)};
  if (config_.attends(like)) {
    if (config_.norms_before()) b.attention_norm = add_norm_params(prefix + ".attention_norm");
    b.attention = make_attention(prefix + ".attention", like);
    if (config_.norms_after()) b.attention_after = add_norm_params(prefix + ".attention_after");
    b.attention_merge = add_merge_params(prefix + ".attention_merge", layer);
  }
  if (config_.norms_before()) b.mlp_norm = add_norm_params(prefix + ".mlp_norm");
  if (config_.is_moe(like))
    b.moe = std::make_unique<MoeLayer>(table_, prefix + ".moe", config_, layer);
  else
    b.mlp = std::make_unique<Mlp>(table_, prefix + ".mlp", config_, config_.mlp_hidden(), config_.mlp_bias);
  if (config_.norms_after()) b.mlp_after = add_norm_params(prefix + ".mlp_after");
  b.mlp_merge = add_merge_params(prefix + ".mlp_merge", behind);
  return b;
}

Decoder::MtpModule Decoder::make_mtp_module(int64_t layer) {
  const std::string prefix = layer_prefix(layer) + "ahead.";
  table_.begin_layer_group(layer);
  const auto projection = [&](const char* name) {
    return table_.add(
        {prefix + name, {config_.width, config_.width}, ParamRole::matrix, Init::normal(config_.init_std)});
  };
  MtpModule a;
  a.embedding_norm = add_norm_params(prefix + "embedding_norm");
  a.hidden_norm = add_norm_params(prefix + "hidden_norm");
  a.from_embedding = projection("from_embedding.weight");
  a.from_hidden = projection("from_hidden.weight");
  a.block = make_block(layer);
  a.final_norm = add_norm_params(prefix + "final_norm");
  return a;
}

Value Decoder::merge_and_norm(Context& c, Stream& s, const Norm& norm, DType type, int measured_layer) const {
  const AddNormAttr attr{config_.norm, s.merge, type, config_.norm_eps, config_.norm_offset};
  const MergeIndices& m = s.merge_params;
  const MergeParams params{c.param(m.stream_scale), c.param(m.stream_bias), c.param(m.y_scale),
                           c.param(m.y_bias)};
  AddNormResult r =
      add_norm(c.tape, attr, s.x_TD, s.deferred_TD, params, c.param(norm.weight), c.param(norm.bias));
  s.x_TD = std::move(r.stream);
  s.deferred_TD = {};
  s.merge = MergeKind::none;
  s.merge_params = {};
  if (measured_layer >= 0 && c.tape.options().record) {
    c.tape.metric("residual_rstd", measured_layer, Reduce::mean, std::move(r.rstd_T));
    if (r.mean_T.defined()) c.tape.metric("residual_mean", measured_layer, Reduce::mean, std::move(r.mean_T));
  }
  return std::move(r.h);
}

namespace {

Value in_type(Context& c, const Value& x_TD, DType type) {
  return x_TD.dtype() == type ? x_TD : scale(c.tape, type, x_TD, 1);
}

}  // namespace

Value Decoder::normed(Context& c, const Value& x_TD, const Norm& norm) const {
  Stream s;
  s.x_TD = in_type(c, x_TD, c.precision().stream);
  return merge_and_norm(c, s, norm, c.precision().compute);
}

Value Decoder::sublayer_input(Context& c, Stream& s, const Norm& norm, int measured_layer) const {
  const DType type = c.precision().compute;
  if (config_.norms_before()) return merge_and_norm(c, s, norm, type, measured_layer);
  merge_residual(c, s);
  return in_type(c, s.x_TD, type);
}

Value Decoder::head_input(Context& c, Stream& s, const Norm& norm) const {
  const DType type = c.precision().compute;
  Value h_TD = merge_and_norm(c, s, norm, type);
  return config_.logit_divisor == 1 ? h_TD : scale(c.tape, type, h_TD, 1 / config_.logit_divisor);
}

void Decoder::set_deferred(Context& c, Stream& s, Value y_TD, const Norm& after,
                           const MergeIndices& merge) const {
  if (config_.norms_after()) y_TD = normed(c, y_TD, after);
  if (config_.sublayer_scale != 1) y_TD = scale(c.tape, c.precision().compute, y_TD, config_.sublayer_scale);
  s.deferred_TD = std::move(y_TD);
  s.merge = config_.residual == ResidualKind::scaled ? MergeKind::scaled : MergeKind::add;
  s.merge_params = merge;
}

void Decoder::merge_residual(Context& c, Stream& s) const {
  if (s.merge == MergeKind::none) return;
  INGOT_CHECK(s.merge == MergeKind::add, "the residual has parameters of its own");
  s.x_TD = add(c.tape, c.precision().stream, s.x_TD, s.deferred_TD);
  s.deferred_TD = {};
  s.merge = MergeKind::none;
}

namespace {

/// Which rows of a matrix with a row per token this rank has.
ShardIndexAttr rows_here(const Context& c, int index) {
  const Placement& p = c.weights.placement();
  const int64_t rows = c.weights.table()[index].shape[0],
                first = uneven_begin(rows, p.tensor_rank, p.tensor_size);
  return {static_cast<int32_t>(first),
          static_cast<int32_t>(uneven_begin(rows, p.tensor_rank + 1, p.tensor_size) - first)};
}

}  // namespace

Value Decoder::look_up(Context& c, const Value& ids_T) const {
  const DType type = c.precision().stream;
  Value x_TD;
  if (tensor_ranks(c) == 1) {
    x_TD = embedding(c.tape, type, ids_T, c.param(embed_));
  } else {
    const Value local_T = shard_index(c.tape, rows_here(c, embed_), ids_T);
    x_TD = leave_tensor_region(c, embedding(c.tape, EmbeddingAttr{type, true}, local_T, c.param(embed_)));
  }
  return config_.embedding_scale == 1 ? x_TD : scale(c.tape, type, x_TD, config_.embedding_scale);
}

Stream Decoder::embed(Context& c, const Value& ids_T) const {
  c.tape.begin_segment("embed", -1);
  Stream s;
  s.x_TD = look_up(c, ids_T);
  if (config_.position == PositionKind::learned) {
    s.deferred_TD =
        embedding(c.tape, c.precision().stream, rows_outside(c, c.positions_T), c.param(positions_));
    s.merge = MergeKind::add;
  }
  if (config_.residual == ResidualKind::scaled) {
    merge_residual(c, s);
    s.merge = MergeKind::affine;
    s.merge_params = input_scale_;
  }
  if (config_.embedding_norm) s.x_TD = merge_and_norm(c, s, embedding_norm_, c.precision().stream);
  if (config_.input_mix) {
    merge_residual(c, s);
    s.origin_TD = s.x_TD;
  }
  s.ids_T = ids_T;
  return s;
}

void Decoder::take_skip(Context& c, Stream& s, const Block& b, int64_t layer) const {
  if (b.skip_scale < 0) return;
  c.tape.begin_segment("stream", static_cast<int>(layer));
  merge_residual(c, s);
  s.x_TD = mix(c.tape, c.precision().stream, s.x_TD, s.skips.back(), {}, c.param(b.skip_scale));
  s.skips.pop_back();
}

void Decoder::mix_input(Context& c, Stream& s, const Block& b, int64_t layer) const {
  if (b.input_mix.stream < 0) return;
  c.tape.begin_segment("stream", static_cast<int>(layer));
  merge_residual(c, s);
  s.x_TD = mix(c.tape, c.precision().stream, s.x_TD, s.origin_TD, c.param(b.input_mix.stream),
               c.param(b.input_mix.origin));
}

void Decoder::attend(Context& c, Stream& s, const Block& b, int64_t layer) const {
  if (!b.attention) return;
  const DType type = c.precision().compute;
  const Value h_TD = sublayer_input(c, s, b.attention_norm, static_cast<int>(layer));
  const int64_t table = config_.value_table(layer);
  const Value ve_TV =
      table < 0 ? Value()
                : embedding(c.tape, type, s.ids_T, c.param(value_embeds_[static_cast<size_t>(table)]));
  set_deferred(c, s, b.attention->forward(c, h_TD, ve_TV, layer), b.attention_after, b.attention_merge);
}

void Decoder::feed_forward(Context& c, Stream& s, const Block& b, int64_t layer,
                           std::vector<BalanceLosses>& balance) const {
  const Value h_TD = sublayer_input(c, s, b.mlp_norm, b.attention ? -1 : static_cast<int>(layer));
  if (b.mlp) return set_deferred(c, s, b.mlp->forward(c, h_TD), b.mlp_after, b.mlp_merge);
  MoeOutput m = b.moe->forward(c, h_TD, s.router_state_TR, layer);
  s.router_state_TR = std::move(m.router_state_TR);
  balance.push_back(std::move(m.losses));
  set_deferred(c, s, std::move(m.y_TD), b.mlp_after, b.mlp_merge);
}

void Decoder::leave_skip(Context& c, Stream& s, int64_t layer) const {
  if (!config_.unet_skips || layer >= config_.layers / 2) return;
  c.tape.begin_segment("stream", static_cast<int>(layer));
  merge_residual(c, s);
  s.skips.push_back(s.x_TD);
}

void Decoder::block(Context& c, Stream& s, const Block& b, int64_t layer,
                    std::vector<BalanceLosses>& balance) const {
  take_skip(c, s, b, layer);
  mix_input(c, s, b, layer);
  c.tape.begin_segment("attention", static_cast<int>(layer));
  attend(c, s, b, layer);
  c.tape.begin_segment("mlp", static_cast<int>(layer));
  feed_forward(c, s, b, layer, balance);
  leave_skip(c, s, layer);
}

void Decoder::blocks(Context& c, Stream& s, int64_t first, int64_t last,
                     std::vector<BalanceLosses>& balance) const {
  for (int64_t l = first; l < last; ++l) block(c, s, blocks_[static_cast<size_t>(l)], l, balance);
}

void Decoder::finish(Context& c, Stream& s) const {
  c.tape.begin_segment("head", -1);
  Value hidden_TD = head_input(c, s, final_norm_);
  Stream end;
  if (!mtp_modules_.empty()) end.x_TD = std::move(s.x_TD);
  end.hidden_TD.push_back(std::move(hidden_TD));
  s = std::move(end);
}

void Decoder::predict_ahead(Context& c, Stream& s, const Value& ids_ahead_T,
                            std::vector<BalanceLosses>& balance) const {
  const int64_t module = config_.mtp.shared ? 0 : static_cast<int64_t>(s.hidden_TD.size()) - 1,
                layer = config_.layers + module;
  const MtpModule& a = mtp_modules_.at(static_cast<size_t>(module));
  const DType type = c.precision().stream;
  c.tape.begin_segment("embed", static_cast<int>(layer));
  const Value next_TD = normed(c, look_up(c, ids_ahead_T), a.embedding_norm);
  Value x_TD = linear(c.tape, type, next_TD, c.param(a.from_embedding));
  s.deferred_TD = linear(c.tape, type, normed(c, s.x_TD, a.hidden_norm), c.param(a.from_hidden));
  s.x_TD = std::move(x_TD);
  s.merge = MergeKind::add;
  block(c, s, a.block, layer, balance);
  s.router_state_TR = {};
  c.tape.begin_segment("head", static_cast<int>(layer));
  s.hidden_TD.push_back(head_input(c, s, a.final_norm));
}

HeadResult Decoder::head(Context& c, HeadAttr attr, const Value& hidden_TD, const Value& targets_T,
                         const Value& teacher_TV, const Value& weight_T, const HeadAllowed& allowed) const {
  attr.cap = config_.head_cap_of();
  if (tensor_ranks(c) == 1)
    return ingot::head(c.tape, attr, hidden_TD, c.param(head_), targets_T, teacher_TV, weight_T, allowed);
  if (attr.mode == HeadMode::gradient || teacher_TV.defined() || allowed.rows_T2.defined())
    throw Error(
        "the head's mode gradient, a teacher and the ids that top-k, top-p or min-p kept need whole rows of "
        "logits, of which tensor ranks have parts",
        "take the head mode recompute or store without them, or tp = 1");
  ShardIndexAttr rows = rows_here(c, head_);
  const Value local_T = shard_index(c.tape, rows, targets_T);
  rows.elsewhere = 0;  // a stand-in, so that the part has statistics of every row
  const HeadResult part = ingot::head(c.tape, attr, enter_tensor_region(c, hidden_TD), c.param(head_),
                                      shard_index(c.tape, rows, targets_T));
  return merge_vocabulary(c.tape, c.tensor, part, local_T, targets_T);
}

Value Decoder::logits(Context& c, const Value& hidden_TD) const {
  return head_logits(c.tape, config_.head_cap_of(), hidden_TD, c.param(head_));
}

ParameterCounts count_parameters(const Decoder& decoder) {
  const ParameterTable& t = decoder.table();
  const ModelConfig& m = decoder.config();
  ParameterCounts n;
  n.total = t.total();
  n.embedding = t.total(ParamRole::embedding) + t.total(ParamRole::head);
  n.without_embedding = n.total - n.embedding;
  const int64_t experts = t.total(ParamRole::expert);
  n.active_without_embedding =
      n.without_embedding - (m.moe.experts > 0 ? experts / m.moe.experts * (m.moe.experts - m.moe.top_k) : 0);
  n.active = n.active_without_embedding + t[decoder.head_index()].shape.numel();
  if (m.moe.balance != BalanceRule::none)
    n.buffers =
        static_cast<int64_t>(decoder.moe_layers().size()) * (m.moe.experts + (m.moe.skip_class ? 1 : 0));
  return n;
}

double training_flops_per_token(const Decoder& decoder, int64_t context) {
  const ModelConfig& m = decoder.config();
  double keys = 0;
  for (int64_t l = 0; l < m.layers; ++l)
    if (m.attends(l))
      keys += static_cast<double>(m.window_of(l) > 0 ? std::min(context, m.window_of(l)) : context);
  return 6.0 * static_cast<double>(count_parameters(decoder).active) +
         6.0 * keys * static_cast<double>(m.heads * (m.key_width() + m.value_width()));
}

}  // namespace ingot
