// The decoder: embedding, L blocks of (attention, feed-forward), final norm. Assembled from options; every family is
// this class with another ModelConfig. The forward below is the only description of the model: training, evaluation,
// decoding, memory planning and counting all run it.
//
// Residual merges. A block receives the stream and the not yet added output of the sublayer before ("pending") together
// with the merge's parameters; each norm merges first (ops/add_norm). What is alive at a block's border is therefore the
// stream, the pending output, the router's state, and what options carry past the blocks (Stream): what a pipeline cut
// sends. A merge's parameters belong to the part that reads them, the block behind the border.
//
// Multi-token prediction goes on from the stream that the final norm has merged, so the final norm belongs to the first of its
// modules where there are any. Behind it the inputs of the heads are alive, one for each depth so far.
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

/// Values alive at the border of two blocks.
struct Stream {
  Value x_TD;        ///< residual stream
  Value pending_TD;  ///< output of the last sublayer, not merged yet; absent at the start
  MergeKind merge = MergeKind::none;
  MergeIndices merge_params;
  Value router_state_TR;
  Value origin_TD;  ///< the embedding (x0), with input_mix
  std::vector<Value>
      skips;    ///< outputs of the first half's blocks that the last half has not taken yet, with unet_skips
  Value ids_T;  ///< what layers look up value embeddings by
  std::vector<Value>
      hidden_TD;  ///< inputs of heads, in the compute type: the next token's, then those of depths ahead
};

/// A place between two parts of the model, where a pipeline may cut: before a layer, or behind the last one; with modules of
/// multi-token prediction before it also behind the final norm.
struct Cut {
  int64_t layer = 0;    ///< 0: behind the embedding; config().layers: behind the last layer
  int64_t modules = 0;  ///< before the cut
  int64_t depths = 0;   ///< that the pass predicts ahead: all in training, else none
};

struct DecoderOutput {
  Value hidden_TD;                     ///< final norm's output, in the compute type: the head's input
  std::vector<BalanceLosses> balance;  ///< one per MoE layer
};

class Decoder {
 public:
  /// Builds the parameter table; allocates nothing of the model's size. Throws Error for an invalid config; config.vocab
  /// must be set.
  explicit Decoder(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  const ParameterTable& table() const { return table_; }
  /// Another base of the rotation (a phase's rope_theta), or window in tokens, from here on; part of config() and so of
  /// checkpoints.
  void set_rope_theta(double theta);
  void set_window(int64_t tokens);
  /// See ParameterTable::freeze(). Before gradients and optimizers are made from the table.
  void freeze(const std::vector<std::string>& patterns) { table_.freeze(patterns); }

  /// ids_T (i32) -> hidden states of all rows: embed, all blocks, finish.
  DecoderOutput forward(Context& c, const Value& ids_T) const;
  Stream embed(Context& c, const Value& ids_T) const;
  /// Layers [first, last); their balance losses go to `balance`.
  void blocks(Context& c, Stream& s, int64_t first, int64_t last, std::vector<BalanceLosses>& balance) const;
  /// The final norm: the next token's hidden states.
  void finish(Context& c, Stream& s) const;
  /// Multi-token prediction, training only: the hidden states of the next depth ahead. At depth k, the k-th call after finish(),
  /// they follow from those of depth k - 1 and the ids k places further on, and predict the token 1 + k places further on (spec
  /// megatron-moe §1.20, DeepSeek-V3 eq 21-23). At most config().mtp.depths.
  void predict_ahead(Context& c, Stream& s, const Value& ids_ahead_T,
                     std::vector<BalanceLosses>& balance) const;
  /// At a cut: the shapes and types of the values that are alive there for `rows` rows, the values of a stream in that order,
  /// and the stream made of them.
  std::vector<TensorMeta> border(const Precision& precision, const Cut& cut, int64_t rows) const;
  std::vector<Value> alive(const Stream& s, const Cut& cut) const;
  Stream resume(const std::vector<Value>& values, const Cut& cut, const Value& ids_T) const;
  /// Statistics of the next-token distribution (see ops/head); the cap is the model's. Of all rows that the call's targets
  /// have, equal on all tensor ranks, each of which has a part of the vocabulary: then best_T is absent, and a teacher
  /// and mode gradient, which need whole rows of logits, are Errors.
  HeadResult head(Context& c, HeadAttr attr, const Value& hidden_TD, const Value& targets_T,
                  const Value& teacher_TV = {}, const Value& weight_T = {}) const;
  /// Logits [T, head_rows], for sampling; ids from the vocabulary's size on are padding. A tensor rank gets those of the rows
  /// of the head that it has.
  Value logits(Context& c, const Value& hidden_TD) const;

  int embedding_index() const { return embed_; }
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
    Norm attention_norm, mlp_norm;
    std::unique_ptr<Attention> attention;  ///< absent: the layer does not attend
    std::unique_ptr<Mlp> mlp;
    std::unique_ptr<MoeLayer> moe;
    MergeIndices attention_merge, mlp_merge;
  };

  /// A module of multi-token prediction: a block over a projection of the next embedding and the hidden state.
  struct Ahead {
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
  Ahead make_ahead(int64_t layer);
  std::unique_ptr<Attention> make_attention(const std::string& prefix, int64_t layer);
  Value normed(Context& c, const Value& x_TD, const Norm& norm) const;
  /// Merges the pending output and normalises; returns h of `type` and leaves the merged stream.
  Value merge_and_norm(Context& c, Stream& s, const Norm& norm, DType type) const;
  void set_pending(Stream& s, Value y_TD, const MergeIndices& merge) const;
  /// Merges the pending output, without a norm.
  void merge_residual(Context& c, Stream& s) const;
  /// Rows of the vocabulary's matrix, which tensor ranks have in parts, for the rows outside of tensor regions.
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
  std::vector<Ahead> ahead_;
  Norm final_norm_;
  std::vector<int64_t> moe_layers_;
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

/// Training FLOPs per token: 6 N_active (products) + attention, 12 T C per layer over the full square as most published
/// figures count (T: the context, or a shorter window); causal skipping halves the attention term.
double training_flops_per_token(const Decoder& decoder, int64_t context);

}  // namespace ingot
