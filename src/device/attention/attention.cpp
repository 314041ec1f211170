// Checks, tasks and threads of attention.h; the arithmetic is in isa_attention*.cpp.
#include "device/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/round.h"
#include "device/attention/attention_append.h"
#include "device/attention/attention_kernels.h"
#include "device/memory/scratch.h"

namespace ingot {
namespace {

/// (query row, head) pairs of a task: enough to repay transposing the keys, few enough for the level 2 cache.
constexpr int64_t kMostRows = 512;
constexpr int64_t kFewestRows = 64;

void check(const AttentionArgs& a) {
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0, "heads {} over {}", a.heads,
              a.kv_heads);
  INGOT_CHECK(a.width >= 1 && a.width <= kAttentionMaxWidth && a.values() <= kAttentionMaxWidth,
              "width {}, values {}", a.width, a.values());
  INGOT_CHECK(a.window >= 0 && a.softcap >= 0 && (a.window_block == 0 || a.window % a.window_block == 0),
              "window {} in blocks of {}, softcap {}", a.window, a.window_block, a.softcap);
  INGOT_CHECK(a.type == DType::f32 || a.type == DType::bf16, "type {}", name_of(a.type));
  INGOT_CHECK(a.o_type == DType::f32 || a.o_type == DType::bf16, "type {}", name_of(a.o_type));
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionSpan& span = a.spans[s];
    INGOT_CHECK(span.rows >= 0 && span.past >= 0 && span.first_row >= 0, "span {}: {} rows, {} past", s,
                span.rows, span.past);
    INGOT_CHECK((span.k_blocks == nullptr) == (span.v_blocks == nullptr), "span {}", s);
    INGOT_CHECK(span.k_blocks != nullptr || span.key_row >= 0 || span.past == 0 || span.rows == 0,
                "span {}: {} past keys without blocks", s, span.past);
  }
}

void raise(float& target, float value) {
  std::atomic_ref<float> ref(target);
  float seen = ref.load(std::memory_order_relaxed);
  while (value > seen && !ref.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// Tasks of a call. Of a sequence the last rows, which see the most keys, come first, so that threads end
/// together. Kept per thread.
std::vector<AttentionRange>& plan_forward(const AttentionArgs& a) {
  thread_local std::vector<AttentionRange> tasks;
  tasks.clear();
  const int64_t group_heads = a.heads / a.kv_heads;
  int64_t total = 0;
  for (int64_t s = 0; s < a.span_count; ++s) total += a.spans[s].rows * a.heads;
  const int64_t pairs = std::clamp(total / (int64_t{num_threads()} * 4), kFewestRows, kMostRows);
  const int64_t rows = std::max<int64_t>(1, pairs / group_heads);
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionSpan& span = a.spans[s];
    const int64_t parts = std::max<int64_t>(1, ceil_div(span.rows, rows));
    const int64_t step = std::max<int64_t>(1, ceil_div(span.rows, parts));
    for (int64_t row = (parts - 1) * step; row >= 0; row -= step)
      for (int64_t g = 0; g < a.kv_heads; ++g)
        if (row < span.rows) tasks.push_back({&span, g, row, std::min(row + step, span.rows)});
  }
  return tasks;
}

float* scratch_floats(int64_t count) {
  return static_cast<float*>(scratch(ScratchSlot::attention, count * 4));
}

}  // namespace

void attention_forward(const AttentionArgs& args) {
  attention_forward(args, nullptr);
}

void attention_forward(const AttentionArgs& args, const AppendRow& append) {
  check(args);
  const int64_t group_heads = args.heads / args.kv_heads;
  const std::vector<AttentionRange>& tasks = plan_forward(args);
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  if (args.max_logit != nullptr) std::fill_n(args.max_logit, args.heads, kLowest);
  const auto count = static_cast<int64_t>(tasks.size());
  const auto run = [&](int64_t i) {
    const AttentionRange& r = tasks[static_cast<size_t>(i)];
    const int64_t rows = (r.row1 - r.row0) * group_heads;
    const int64_t floats = attention_scratch(rows, args.width, args.values());
    float* memory = scratch_floats(group_heads + 16 + floats);
    float* top = memory + round_up(floats, 16);
    std::fill_n(top, group_heads, kLowest);
    if (append && r.span->rows == 1 && r.span->k_blocks != nullptr) append(r.span - args.spans, r.group);
    INGOT_ISA_CALL(attention_forward_task)
    ({&args, r, i + 1 < count ? &tasks[static_cast<size_t>(i + 1)] : nullptr, memory,
      args.max_logit != nullptr ? top : nullptr});
    if (args.max_logit != nullptr)
      for (int64_t h = 0; h < group_heads; ++h) raise(args.max_logit[r.group * group_heads + h], top[h]);
  };
  const bool even = std::all_of(tasks.begin(), tasks.end(), [](const AttentionRange& r) {
    return r.row1 - r.row0 == r.span->rows;
  });  // as in decoding
  if (args.span_count < num_threads() && !even) return parallel_in_order(count, run);
  // Neighbours for a thread: their rows are in its caches, or prefetched.
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(i);
  });
}

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionArgs& a = args.forward;
  check(a);
  INGOT_CHECK(a.lse != nullptr);
  INGOT_CHECK(args.d_type == DType::f32 || args.d_type == DType::bf16, "type {}", name_of(args.d_type));
  for (int64_t s = 0; s < a.span_count; ++s)
    INGOT_CHECK(a.spans[s].k_blocks == nullptr, "span {}: no backward through blocks", s);
  const int64_t count = a.span_count * a.kv_heads;
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionSpan& span = a.spans[i / a.kv_heads];
      if (span.rows == 0 && span.key_count() == 0) continue;
      const int64_t group_heads = a.heads / a.kv_heads;
      float* memory = scratch_floats(attention_backward_scratch(span.rows * group_heads, span.key_count(),
                                                                group_heads, a.width, a.values()));
      const int64_t next = i + 1;
      INGOT_ISA_CALL(attention_backward_task)
      ({&args, &span, i % a.kv_heads, next < count ? &a.spans[next / a.kv_heads] : nullptr, next % a.kv_heads,
        memory});
    }
  });
}

}  // namespace ingot
