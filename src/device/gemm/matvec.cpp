// See matvec.h. Threads take ranges of the micro-panels of all experts that have rows.
#include "device/gemm/matvec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "base/prefetch_hint.h"
#include "device/gemm/matvec_kernels.h"
#include "device/memory/scratch.h"

namespace ingot {
namespace {

constexpr int64_t kInlineBytes = 1 << 17;  // of weights, below which threads do not pay
constexpr int64_t kRangeBytes = 1 << 17;   // of weights at least, taken at a time
constexpr int64_t kMaxRanges = 16;
constexpr int64_t kHintBytes = 384 << 10;  // of the next product: they fit the level 2 cache

bool fits(const PackedWeights* packed, DType a_type, bool accumulate) {
  return packed != nullptr && !accumulate && packed->n() > 0 &&
         (packed->type() != DType::bf16 || a_type == DType::bf16);
}

const std::byte* at(const void* p, DType type, int64_t index) {
  return p == nullptr ? nullptr : static_cast<const std::byte*>(p) + index * size_of(type);
}

/// Rows of A as words: pairs as stored, an odd k completed with a 0; else f32.
void words_of(const void* a, DType type, int64_t lda, int64_t rows, int64_t k, bool pairs, float* out,
              int64_t stride) {
  if (k == 0) return;  // A may be nullptr
  for (int64_t i = 0; i < rows; ++i, out += stride) {
    const std::byte* row = at(a, type, i * lda);
    if (pairs) {
      if (k % 2 != 0) out[k / 2] = 0;
      std::memcpy(out, row, static_cast<size_t>(k) * sizeof(bf16));
    } else if (type == DType::f32) {
      std::memcpy(out, row, static_cast<size_t>(k) * sizeof(float));
    } else {
      for (int64_t j = 0; j < k; ++j) {
        bf16 x;
        std::memcpy(&x, row + j * int64_t{sizeof(bf16)}, sizeof(x));
        out[j] = to_float(x);
      }
    }
  }
}

/// A range of the micro-panels, from whose front threads take some.
struct alignas(64) Range {
  std::atomic<int64_t> next;
  int64_t end;
};

/// Runs problems that differ in rows and weights only; `following` is likely read next. Each thread has a
/// range of its own, then helps others: thread 1, which may have prefetched the following weights while idle,
/// begins with the first range.
void run(const std::vector<FewRows>& problems, int64_t panels, int64_t panel_bytes, const void* following) {
  const auto count = static_cast<int64_t>(problems.size()) * panels;
  const auto body = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      FewRows part = problems[static_cast<size_t>(begin / panels)];
      part.first = begin % panels;
      part.last = std::min(panels, part.first + end - begin);
      begin += part.last - part.first;
      INGOT_ISA_CALL(few_rows)(part);
    }
  };
  if (count * panel_bytes < kInlineBytes) return body(0, count);
  const int64_t threads = num_threads(), ranges = std::min(threads, kMaxRanges);
  const int64_t grain = std::max<int64_t>(1, kRangeBytes / std::max<int64_t>(1, panel_bytes));
  Range range[kMaxRanges];
  for (int64_t i = 0; i < ranges; ++i)
    range[i].next = count * i / ranges, range[i].end = count * (i + 1) / ranges;
  const ScopedPrefetchHint hint(following, kHintBytes);
  parallel_for(threads, 1, [&](int64_t thread, int64_t) {
    for (int64_t i = 0; i < ranges; ++i) {
      Range& r = range[(thread + threads - 1 + i) % ranges];
      for (int64_t at; (at = r.next.fetch_add(grain, std::memory_order_relaxed)) < r.end;)
        body(at, std::min(at + grain, r.end));
    }
  });
}

/// What the products of all experts share; rows, weights and results follow.
template <class Args>
FewRows shared_part(const Args& args) {
  FewRows p{};
  p.b_type = args.packed->type();
  p.k = args.k, p.n = args.n;
  p.c_type = args.c_type, p.ldc = args.ldc;
  p.bias_type = args.bias_type;
  p.x_stride = (args.k + 15) / 16 * 16;
  return p;
}

std::vector<FewRows>& problems_of_thread() {
  thread_local std::vector<FewRows> problems;
  problems.clear();
  return problems;
}

int64_t panels_of(const PackedWeights& w) {
  return (w.n() + w.panel() - 1) / w.panel();
}
/// The weights that were packed after w (dense_pages.h), mostly those of the next product.
const void* following(const PackedWeights& w) {
  return static_cast<const std::byte*>(w.data()) + w.bytes();
}
int64_t panel_bytes(const PackedWeights& w) {
  return w.bytes() / w.experts() / panels_of(w);
}

}  // namespace

bool gemm_few_rows(const GemmArgs& args) {
  if (args.a_transposed || args.m < 1 || args.m > kFewRows ||
      !fits(args.packed, args.a_type, args.accumulate))
    return false;
  FewRows p = shared_part(args);
  auto* words =
      static_cast<float*>(scratch(ScratchSlot::gemm_a, std::max<int64_t>(args.m * p.x_stride, 16) * 4));
  words_of(args.a, args.a_type, args.lda, args.m, args.k, p.b_type == DType::bf16, words, p.x_stride);
  p.x = words, p.rows = args.m;
  p.b = static_cast<const std::byte*>(args.packed->data());
  p.c = args.c, p.bias = args.bias;
  std::vector<FewRows>& problems = problems_of_thread();
  problems.push_back(p);
  run(problems, panels_of(*args.packed), panel_bytes(*args.packed), following(*args.packed));
  return true;
}

bool gemm_few_rows(const GroupedGemmArgs& args) {
  if (!fits(args.packed, args.a_type, args.accumulate)) return false;
  for (int64_t e = 0; e < args.experts; ++e)
    if (args.offsets[e + 1] - args.offsets[e] > kFewRows) return false;
  const FewRows shared = shared_part(args);
  const int64_t first = args.offsets[0], rows = args.offsets[args.experts] - first;
  auto* words =
      static_cast<float*>(scratch(ScratchSlot::gemm_a, std::max<int64_t>(rows * shared.x_stride, 16) * 4));
  words_of(at(args.a, args.a_type, first * args.lda), args.a_type, args.lda, rows, args.k,
           shared.b_type == DType::bf16, words, shared.x_stride);
  std::vector<FewRows>& problems = problems_of_thread();
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t row = args.offsets[e];
    FewRows p = shared;
    p.rows = args.offsets[e + 1] - row;
    if (p.rows == 0) continue;
    p.x = words + (row - first) * shared.x_stride;
    p.b = at(args.packed->data(), p.b_type, e * args.packed->stride());
    p.c = static_cast<std::byte*>(args.c) + row * args.ldc * size_of(args.c_type);
    p.bias = at(args.bias, args.bias_type, e * args.n);
    problems.push_back(p);
  }
  run(problems, panels_of(*args.packed), panel_bytes(*args.packed), following(*args.packed));
  return true;
}

}  // namespace ingot
