// The decoder: embedding, L blocks of (attention, feed-forward), final norm. Assembled from options; every
// family is this class with another ModelConfig. The forward below is the only description of the model:
// training, evaluation, decoding, memory planning and counting all run it.
//
// Residual merges. A block receives the residual stream and the output of the sublayer before, whose add is
// deferred, with the parameters of that merge; each norm merges first (ops/add_norm). What is live between
// two blocks is therefore a Stream: residual stream, deferred output, router state, and what options carry
// past the blocks. Pipeline stages send it to each other (stage_boundary.h). The parameters of a merge belong
// to the layer group that reads them: the block after the boundary.
//
// Multi-token prediction continues from the stream that the final norm has merged, so the final norm belongs
// to the first of its modules where there are any. After it the inputs of the heads are live, one per depth
// so far.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "nn/config.h"
#include "nn/latent_attention.h"
#include "nn/mlp.h"
#include "nn/moe/layer.h"
#include "ops/add_norm/add_norm.h"
#include "ops/head/head.h"

namespace ingot {

/// Parameters of a merge; -1: it has none.
struct MergeIndices {
  int stream_scale = -1, stream_bias = -1, y_scale = -1, y_bias = -1;
};

/// The values between two blocks, each [T, D] but for the router state [T, router width].
struct Stream {
  Value x_TD;         ///< residual stream
  Value deferred_TD;  ///< output of the last sublayer, not added yet; absent at the start
  MergeKind merge = MergeKind::none;
  MergeIndices merge_params;
  Value router_state_TR;
  /// The embedding (x0), with input_mix.
  Value origin_TD;
  /// With unet_skips: outputs of blocks of the first half that the last half has not read yet.
  std::vector<Value> skips;
  /// Inputs of heads, in the compute type: the next token's, then those of depths ahead.
  std::vector<Value> hidden_TD;
  /// i32 [T], the keys of value embeddings.
  Value ids_T;

  /// Every value that a pipeline stage may have to send, in one order; ids_T comes from the batch.
  template <class F>
  void visit(F&& f) {
    visit(*this, f);
  }
  template <class F>
  void visit(F&& f) const {
    visit(*this, f);
  }

 private:
  template <class Self, class F>
  static void visit(Self& s, F& f) {
    f(s.x_TD), f(s.deferred_TD), f(s.router_state_TR), f(s.origin_TD);
    for (auto& v : s.skips) f(v);
    for (auto& v : s.hidden_TD) f(v);
  }
};

class StageBoundaries;

struct DecoderOutput {
  Value hidden_TD;                     ///< final norm's output, in the compute type: the head's input
  std::vector<BalanceLosses> balance;  ///< one per MoE layer
};

class Decoder {
 public:
  /// Builds the parameter table; allocates nothing of the model's size. Throws Error for an invalid config;
  /// config.vocab must be set.
  explicit Decoder(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  /// Another base of the rotation (a phase's rope_theta), or window in tokens, from here on; part of config()
  /// and so of checkpoints.
  void set_rope_theta(double theta);
  void set_window(int64_t tokens);
  /// See ParameterTable::freeze(). Before gradients and optimizers are made from the table.
  void freeze(const std::vector<std::string>& patterns) { table_.freeze(patterns); }

  /// ids_T (i32 [T]) -> next-token hidden states and balance losses: StageForward of the whole model.
  DecoderOutput forward(Context& c, const Value& ids_T) const;
  Stream embed(Context& c, const Value& ids_T) const;
  /// Layers [first, last); their balance losses go to `balance`.
  void blocks(Context& c, Stream& s, int64_t first, int64_t last, std::vector<BalanceLosses>& balance) const;
  /// The final norm: the next token's hidden states.
  void finish(Context& c, Stream& s) const;
  /// Multi-token prediction ([DeepSeek-V3] §2.2), training only: the hidden states of the next depth ahead.
  /// At depth k, the k-th call after finish(), they follow from those of depth k - 1 and the ids k positions
  /// later, and predict the token 1 + k positions later. At most config().mtp.depths.
  void predict_ahead(Context& c, Stream& s, const Value& ids_ahead_T,
                     std::vector<BalanceLosses>& balance) const;
  /// What pipeline stages send to each other, for passes that predict `depths` ahead. Found by a dry run at
  /// the first call and kept. Thread-safe.
  const StageBoundaries& boundaries(const Precision& precision, int64_t depths) const;
  /// Statistics of the next-token distribution (see ops/head); the cap is the model's. Of all rows of the
  /// call's targets, and equal on all tensor ranks, which shard the vocabulary: then best_T is absent, and a
  /// teacher, allowed ids and the mode gradient, which need whole rows of logits, are Errors.
  HeadResult head(Context& c, HeadAttr attr, const Value& hidden_TD, const Value& targets_T,
                  const Value& teacher_TV = {}, const Value& weight_T = {},
                  const HeadAllowed& allowed = {}) const;
  /// Logits [T, head_rows], for sampling; ids from the vocabulary's size on are padding. A tensor rank gets
  /// those of the rows of the head that it has.
  Value logits(Context& c, const Value& hidden_TD) const;

  /// Index of the matrix that the head reads (the embedding's when tied).
  int head_index() const { return head_; }
  /// Layers with experts, ascending; multi-token prediction's modules count from config().layers on.
  const std::vector<int64_t>& moe_layers() const { return moe_layers_; }

 private:
  struct Norm {
    int weight = -1, bias = -1;
  };
  struct InputMix {
    int stream = -1, origin = -1;
  };
  struct Block {
    int skip_scale = -1;
    InputMix input_mix;
    Norm attention_norm, mlp_norm;         ///< of what a sublayer reads; absent where norms stand after it
    Norm attention_after, mlp_after;       ///< of what it adds; absent where norms stand before it
    std::unique_ptr<Attention> attention;  ///< absent: the layer does not attend
    std::unique_ptr<Mlp> mlp;
    std::unique_ptr<MoeLayer> moe;
    MergeIndices attention_merge, mlp_merge;
  };

  /// A module of multi-token prediction: a block over a projection of the next embedding and the hidden
  /// state.
  struct MtpModule {
    Norm embedding_norm, hidden_norm, final_norm;
    int from_embedding = -1, from_hidden = -1;
    Block block;
  };

  Norm add_norm_params(const std::string& prefix);
  /// The merge of a sublayer's output, which is read by `part`.
  MergeIndices add_merge_params(const std::string& prefix, int64_t part);
  /// Which parts read the matrices that several do.
  void share_parameters();
  int add_scalar(const std::string& name, double value);
  void add_value_embeddings();
  /// Layers from config().layers on are multi-token prediction's; their options are the last layer's.
  Block make_block(int64_t layer);
  MtpModule make_mtp_module(int64_t layer);
  std::unique_ptr<Attention> make_attention(const std::string& prefix, int64_t layer);
  Value normed(Context& c, const Value& x_TD, const Norm& norm) const;
  /// What a sublayer reads: the merged stream, normed where norms stand before it, in the compute type.
  Value sublayer_input(Context& c, Stream& s, const Norm& norm, int measured_layer) const;
  /// The head's input: the merged stream, normed, divided by logit_divisor.
  Value head_input(Context& c, Stream& s, const Norm& norm) const;
  /// Merges the deferred output and normalises; returns h of `type` and leaves the merged stream.
  /// `measured_layer`: the metrics have the residual stream's statistics under it; -1: not.
  Value merge_and_norm(Context& c, Stream& s, const Norm& norm, DType type, int measured_layer = -1) const;
  /// Leaves a sublayer's output for the next merge: normed where norms stand after it, times sublayer_scale.
  void set_deferred(Context& c, Stream& s, Value y_TD, const Norm& after, const MergeIndices& merge) const;
  /// Merges the deferred output, without a norm.
  void merge_residual(Context& c, Stream& s) const;
  /// Rows of the vocabulary's matrix, which tensor ranks have in parts, for the rows outside of tensor
  /// regions.
  Value look_up(Context& c, const Value& ids_T) const;
  void take_skip(Context& c, Stream& s, const Block& b, int64_t layer) const;
  void mix_input(Context& c, Stream& s, const Block& b, int64_t layer) const;
  void attend(Context& c, Stream& s, const Block& b, int64_t layer) const;
  void feed_forward(Context& c, Stream& s, const Block& b, int64_t layer,
                    std::vector<BalanceLosses>& balance) const;
  void leave_skip(Context& c, Stream& s, int64_t layer) const;
  void block(Context& c, Stream& s, const Block& b, int64_t layer, std::vector<BalanceLosses>& balance) const;

  ModelConfig config_;
  ParameterTable table_;
  int embed_ = -1, positions_ = -1, head_ = -1;
  std::vector<int> value_embeds_;
  MergeIndices input_scale_;
  Norm embedding_norm_;
  std::vector<Block> blocks_;
  std::vector<MtpModule> mtp_modules_;
  Norm final_norm_;
  std::vector<int64_t> moe_layers_;
  struct BoundaryCache;
  static std::shared_ptr<BoundaryCache> boundary_cache_of(const ModelConfig& config);
  std::shared_ptr<BoundaryCache> boundaries_ = boundary_cache_of(config_);
};

/// Exact counts, by part; all follow from the table.
struct ParameterCounts {
  int64_t total = 0;      ///< trainable parameters
  int64_t embedding = 0;  ///< embedding (and untied head, learned positions)
  int64_t without_embedding = 0;
  int64_t active_without_embedding = 0;  ///< per token: top_k of the experts
  int64_t active = 0;                    ///< with one embedding row lookup counted as the whole matrix once
  int64_t buffers = 0;                   ///< balancing biases
};
ParameterCounts count_parameters(const Decoder& decoder);

/// Training FLOPs per token: 6 N_active (products) + attention, 12 T C per layer over the full square as most
/// published figures count (T: the context, or a shorter window); causal skipping halves the attention term.
double training_flops_per_token(const Decoder& decoder, int64_t context);

}  // namespace ingot
