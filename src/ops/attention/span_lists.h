// The documents and sequences of a call of attention as spans of its kernels.
#pragma once
#include <vector>

#include "device/attention/attention.h"
#include "ops/attention/attention.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {

/// Spans whose keys lie in the call's rows, and spans whose keys lie in pages (this call's included, once
/// appended).
struct SpanLists {
  std::vector<AttentionSpan> in_place, paged;

  /// Who writes the keys and values of a sequence of which the call has one row.
  enum class Single : uint8_t { written, left };

  /// Appends the call's keys and values to its sequences, if it has some. One per thread is kept, until the
  /// next call: a call should not ask for memory.
  static const SpanLists& of(const OpCall& call, Single single = Single::written);
  /// Writes the one row of paged[i] for a key-value head, where it was left.
  void write_row(int64_t i, int64_t head) const {
    SequenceState::write_kv(layer_, fresh_[static_cast<size_t>(i)], head);
  }

  void set_in_place(AttentionArgs& args) const;
  /// And how keys and values lie in pages.
  void set_paged(const AttentionAttr& a, AttentionArgs& args) const;

 private:
  void fill(const AttentionAttr& a, const OpCall& call, Single single);

  int64_t layer_ = 0;
  std::vector<KvRows> fresh_;        ///< by paged span
  std::vector<KvRows> written_;      ///< those that are not left
  std::vector<const void*> blocks_;  ///< of each paged span: keys, then values
};

}  // namespace ingot
