// Causal attention on the CPU, forward and backward: flash style (scores never leave the caches), grouped
// key-value heads, optional sliding window and logit softcap. One kernel for training, chunked prefill and
// decoding.
//
//   s_ij = cap(scale * q_i . k_j),  cap(x) = softcap * tanh(x / softcap) or x
//   o_i  = sum_j softmax(s_i)_j v_j over the keys first_visible_key(position(i)) <= j <= position(i)
//   lse_i = log sum_j exp(s_ij)
//
// Contract (docs/numerics.md): each score sums by fma over ascending channels; keys are taken in blocks of 64
// counted from the start of the document, in ascending order, by online softmax; P V sums by fma over
// ascending keys; masked keys and blocks are exact identities. So the bits of a row's result do not depend on
// the rows it is computed with, on how a document is split into calls (whole, chunks, token by token), on
// threads or on the instruction set. Keys that a later row of the same call sees must be finite. Backward: dQ
// sums over ascending keys; dK and dV over ascending (row, head of the group); one writer each.
//
// Thread-safe; uses the pool; allocates nothing once its scratch has grown. Source: Dao et al.,
// FlashAttention-2 (2023).
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/documents.h"
#include "device/gpu/anywhere.h"

namespace ingot {

constexpr int64_t kAttentionBlock = 64;  ///< keys per block, and per cache page
constexpr int64_t kAttentionMaxWidth = 1024;

/// Which keys a token of a document sees, itself always among them. Size 0: all before it. Block 0: the
/// `size` latest keys. Block b > 0: the keys of the size / b latest blocks of b tokens, the token's own among
/// them; the document's first token is number `phase` of its row, from whose start blocks are counted.
struct AttentionWindow {
  int64_t size = 0;
  int64_t block = 0;  ///< divides size
  int64_t phase = 0;  ///< used with blocks only

  /// First key that token t sees.
  INGOT_ANYWHERE int64_t first(int64_t t) const {
    const int64_t from = size == 0    ? 0
                         : block == 0 ? t - size + 1
                                      : ((t + phase) / block + 1) * block - size - phase;
    return from > 0 ? from : 0;
  }
  /// The tokens below it see key j, where there is a window at all.
  INGOT_ANYWHERE int64_t end(int64_t j) const {
    return block == 0 ? j + size : (j + phase) / block * block + size - phase;
  }
};

/// Consecutive rows of one document. Row r of the span has position past + r and sees keys 0 .. past + r, of
/// which the first `keys` take part: all (the rows' own keys and values included), or fewer, and then the
/// result is a part of the row's, to be merged with others by log-sum-exp; a row that sees none has lse -inf
/// and no o.
struct AttentionSpan {
  int64_t first_row = 0;  ///< in q, o, lse
  int64_t rows = 0;       ///< 0 is legal
  int64_t past = 0;
  /// Block b holds the keys (values) 64 b .. 64 b + 63 of the document: pointer to its first row, key-value
  /// head 0; the other heads follow k_head (v_head) elements apart. With args.turned_keys a head's keys are
  /// [K][64], as scores read them, and those beyond key_count() may be anything. nullptr: the keys and values
  /// are the rows of args.k and args.v that start at key_row, or at first_row (past must be 0).
  const void* const* k_blocks = nullptr;
  const void* const* v_blocks = nullptr;
  int64_t phase = 0;     ///< see AttentionWindow
  int64_t key_row = -1;  ///< -1: first_row
  int64_t keys = -1;     ///< -1: past + rows

  INGOT_ANYWHERE int64_t first_key_row() const { return key_row < 0 ? first_row : key_row; }
  INGOT_ANYWHERE int64_t key_count() const { return keys < 0 ? past + rows : keys; }
};

struct AttentionArgs {
  int64_t heads = 0;        ///< H, a multiple of kv_heads; query head h uses key-value head h / (H / G)
  int64_t kv_heads = 0;     ///< G
  int64_t width = 0;        ///< K, 1 .. 1024: of queries and keys; heads are adjacent within a row
  int64_t value_width = 0;  ///< V, of values and outputs; 0: K
  float scale = 1.0f;
  int64_t window = 0;  ///< size and block of an AttentionWindow
  int64_t window_block = 0;
  float softcap = 0.0f;  ///< 0: none
  const AttentionSpan* spans = nullptr;
  int64_t span_count = 0;
  DocumentList documents = {};  ///< kernels of GPUs: in place of spans, on the device
  int64_t document_rows = 0;    ///< of all documents
  DType type = DType::f32;      ///< of q, k, v: f32 or bf16
  const void* q = nullptr;  ///< [rows, H * K], strides in elements (all may be columns of one q|k|v buffer)
  int64_t q_stride = 0;
  const void* k = nullptr;  ///< [rows, G * K]; unused where spans have blocks, but k_stride is theirs too
  int64_t k_stride = 0;
  const void* v = nullptr;
  int64_t v_stride = 0;
  int64_t k_head = 0;        ///< from head to head of a block; 0: K, adjacent
  int64_t v_head = 0;        ///< 0: V
  bool turned_keys = false;  ///< of spans with blocks
  DType o_type = DType::f32;
  void* o = nullptr;  ///< [rows, H * V]
  int64_t o_stride = 0;
  float* lse = nullptr;  ///< [rows, H], or nullptr
  /// [H], or nullptr: the largest s_ij of each head over the call (-inf without rows)
  float* max_logit = nullptr;

  INGOT_ANYWHERE int64_t values() const { return value_width > 0 ? value_width : width; }
  INGOT_ANYWHERE AttentionWindow window_of(const AttentionSpan& span) const {
    return {window, window_block, span.phase};
  }
};

void attention_forward(const AttentionArgs& args);

/// Needs o and lse of the forward, of all keys where spans have a part of them. No blocks. Of every span's
/// queries and keys the gradients are set; spans must not share rows or keys.
struct AttentionBackwardArgs {
  AttentionArgs forward;
  const void* d_o = nullptr;  ///< [rows, H * V] in o_type
  int64_t d_o_stride = 0;
  DType d_type = DType::f32;  ///< of d_q, d_k, d_v, which are set, not added to
  void* d_q = nullptr;
  int64_t d_q_stride = 0;
  void* d_k = nullptr;
  int64_t d_k_stride = 0;
  void* d_v = nullptr;
  int64_t d_v_stride = 0;
};

void attention_backward(const AttentionBackwardArgs& args);

}  // namespace ingot
