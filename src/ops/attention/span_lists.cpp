// See span_lists.h.
#include "ops/attention/span_lists.h"

#include "ops/sequence/documents.h"

namespace ingot {

static_assert(kAttentionBlock == SequenceState::kPageTokens);

const SpanLists& SpanLists::of(const OpCall& call, Single single) {
  thread_local SpanLists lists;
  lists.fill(call.attr<AttentionAttr>(), call, single);
  return lists;
}

void SpanLists::set_in_place(AttentionArgs& args) const {
  args.spans = in_place.data(), args.span_count = static_cast<int64_t>(in_place.size());
}

void SpanLists::set_paged(const AttentionAttr& a, AttentionArgs& args) const {
  args.spans = paged.data(), args.span_count = static_cast<int64_t>(paged.size());
  args.k_stride = a.head_width, args.v_stride = a.values(), args.turned_keys = true;
  args.k_head = kAttentionBlock * a.head_width, args.v_head = kAttentionBlock * a.values();
}

void SpanLists::fill(const AttentionAttr& a, const OpCall& call, Single single) {
  const Tensor& qkv = call.in[0];
  layer_ = a.layer;
  const CallSpans of_call(call, a.rows, kAttentionDocuments);
  const auto spans = of_call.spans();
  in_place.clear(), paged.clear(), fresh_.clear(), written_.clear(), blocks_.clear();
  for (const SequenceSpan& s : spans) {
    if (s.rows == 0) continue;
    if (s.state == nullptr)
      in_place.push_back({s.row_begin, s.rows, 0, nullptr, nullptr, s.phase});
    else
      fresh_.push_back({s.state, s.past, qkv.slice(s.row_begin, s.row_begin + s.rows)});
  }
  if (fresh_.empty()) return;
  SequenceState::announce_kv(a.layer, fresh_);
  for (const KvRows& f : fresh_)
    if (single == Single::written || f.packed.dim(0) > 1) written_.push_back(f);
  SequenceState::write_kv(a.layer, written_);
  for (const KvRows& f : fresh_) {
    const int64_t pages = SequenceStore::pages_for(f.position + f.packed.dim(0));
    for (int64_t p = 0; p < pages; ++p) blocks_.push_back(f.state->keys(a.layer, p));
    for (int64_t p = 0; p < pages; ++p) blocks_.push_back(f.state->values(a.layer, p));
  }
  const void* const* at = blocks_.data();
  for (const SequenceSpan& s : spans) {
    if (s.rows == 0 || s.state == nullptr) continue;
    const int64_t pages = SequenceStore::pages_for(s.past + s.rows);
    paged.push_back({s.row_begin, s.rows, s.past, at, at + pages, s.phase});
    at += 2 * pages;
  }
}

}  // namespace ingot
