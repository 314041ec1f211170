// What inference remembers of a sequence between calls: per layer the keys and values of its tokens, and, for
// models with compressed convolutional attention (ops/cca), the last inputs of the convolutions and the
// delayed half of the values.
//
// Keys and values lie in pages of 64 tokens. A page holds all layers, so that space for a call is found or
// refused once, before anything has changed. Pages are shared between forks and copied when a fork writes to
// a shared one. The pool has a limit; a full pool is an Error that names the sizes, and leaves every sequence
// as it was. A full page also has what the convolutions keep at its end, so that a sequence can begin with
// the pages of another one.
//
// Operations: append (the only mutation of what is remembered; attention and cca do it), fork, rollback. A
// snapshot is a fork that is kept; restoring it is `state = snapshot.fork()`. Thread-safety: the store may be
// used from many threads; one SequenceState belongs to one thread at a time (forks of one sequence count as
// different states).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace ingot {

/// What a sequence keeps; fixed by the model.
struct SequenceLayout {
  int64_t layers = 0;
  int64_t kv_heads = 0;       ///< G
  int64_t head_width = 0;     ///< K
  DType dtype = DType::bf16;  ///< of keys and values: the compute type, so that a cached key has the bits of
                              ///< a fresh one
  int64_t conv_channels = 0;  ///< cca: (H + G) K; 0 without
  int64_t delayed_channels = 0;  ///< cca: G K / 2; 0 without
  /// How many tokens a sequence with cca can be rolled back (its convolution inputs are kept that long).
  /// Sequences without cca roll back to any length.
  int64_t rollback_tokens = 0;
  int64_t value_width = -1;  ///< V; -1: K; 0: no values (latent attention keeps one row per token)

  int64_t values() const { return value_width < 0 ? head_width : value_width; }
  bool has_conv() const { return conv_channels > 0; }
  bool turned_keys() const { return values() > 0; }
  /// f32, holding the rounded projections; f64 in double runs.
  DType conv_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

class SequenceState;

namespace detail {
class PagePool;
}

/// Keys and values that a state gets.
struct KvRows {
  SequenceState* state = nullptr;
  int64_t position = 0;
  Tensor packed;
};

class SequenceState {
 public:
  SequenceState(SequenceState&&) noexcept;
  SequenceState& operator=(SequenceState&&) noexcept;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  ~SequenceState();

  const SequenceLayout& layout() const;
  /// Tokens that every layer has.
  int64_t tokens() const;
  /// Bytes of its pages (shared ones count fully) and of its convolution state.
  int64_t bytes() const;

  /// The same sequence again; the two grow apart from here. Full pages are shared. Not between the layers of
  /// a call.
  SequenceState fork() const;
  /// Forgets all tokens from `length` on. Error where cca's convolution inputs at that length are gone: fork
  /// first and restore the fork. Also mends a state whose call failed between two layers.
  void rollback(int64_t length);

  /// A page as others may hold it. Its memory goes back to the pool with the last holder.
  using Page = std::shared_ptr<std::byte>;
  /// The tokens 64 page .. 64 page + 63, all of which every layer has.
  Page full_page(int64_t page) const;
  /// Holds another page with the same values instead.
  void replace_page(int64_t page, Page same);
  /// Begins an empty sequence with full pages of the same pool.
  void adopt(std::span<const Page> pages);
  /// Pages that the pool gives up in reserve(rows).
  int64_t pages_to_reserve(int64_t rows) const;
  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }

  /// Reserves space for `rows` tokens after tokens(). Error when the pool is full (nothing has changed then).
  void reserve(int64_t rows);

  // For ops. `position` is the number of tokens the layer has: appending elsewhere is an INGOT_CHECK.

  /// Appends keys and values: the last G (K + V) columns of the packed rows [rows, width], of the layout's
  /// dtype.
  void append_kv(int64_t layer, int64_t position, const Tensor& packed);
  /// append_kv() for many states in two parts: counts the rows as appended; then each head of each state is
  /// to be written once, by all threads here, or one by one, at the same time, by tasks that read it next.
  static void announce_kv(int64_t layer, std::span<const KvRows> all);
  static void write_kv(int64_t layer, std::span<const KvRows> all);
  static void write_kv(int64_t layer, const KvRows& rows, int64_t head);
  /// Keys as [G, K, 64] (turned, as attention's scores read them; [G, 64, K] without values) or values as [G,
  /// 64, V] of the tokens 64 page .. 64 page + 63; those not appended yet are undefined. What a head reads
  /// lies together.
  const void* keys(int64_t layer, int64_t page) const;
  const void* values(int64_t layer, int64_t page) const;
  /// Appends the first conv_channels and the last delayed_channels columns of the packed rows.
  void append_conv(int64_t layer, int64_t position, const Tensor& packed);
  /// Row of token `position` (one of the last two appended; zeros before the first token): conv_channels,
  /// then delayed_channels elements of conv_dtype.
  const void* conv_row(int64_t layer, int64_t position) const;

  static constexpr int64_t kPageTokens = 64;

 private:
  friend class SequenceStore;
  explicit SequenceState(std::shared_ptr<detail::PagePool> pool);
  std::vector<int64_t> shared_pages(int64_t first) const;
  std::byte* layer_of_page(int64_t layer, int64_t page) const;
  std::byte* conv_slot(int64_t layer, int64_t position);
  std::byte* border_row(int64_t layer, int64_t position) const;

  std::shared_ptr<detail::PagePool> pool_;
  std::vector<Page> pages_;
  std::vector<int64_t> kv_tokens_, conv_tokens_;  ///< per layer
  std::vector<std::byte> conv_;  ///< [layers][rollback_tokens + 2][channels], a ring over tokens
};

/// Makes sequences of one layout that share one pool of pages.
class SequenceStore {
 public:
  /// At most `page_limit` pages exist at a time; they are allocated as needed.
  SequenceStore(const SequenceLayout& layout, int64_t page_limit);
  SequenceState create();

  const SequenceLayout& layout() const;
  int64_t page_bytes() const;
  int64_t page_limit() const;
  int64_t pages_in_use() const;
  /// Allocated, in use or free.
  int64_t bytes() const;
  /// Pages that a sequence of `tokens` tokens needs.
  static int64_t pages_for(int64_t tokens) {
    return (tokens + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens;
  }

 private:
  std::shared_ptr<detail::PagePool> pool_;
};

}  // namespace ingot
