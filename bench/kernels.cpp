// How close attention and products of few to many rows come to the machine: percentages of the fp32 fma peak measured around
// each. (Products of a model: `ingot bench gemm`.) usage: ingot_bench_kernels [rows|attention|all] [repetitions]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "device/attention/attention.h"
#include "device/gemm/gemm.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"

using namespace ingot;

namespace {

int repetitions = 5;

bool count_cpu = false;

double now() {
  if (count_cpu) {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec)) / num_threads();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Data {
  Data(int64_t count, uint64_t seed) : f(static_cast<size_t>(count)), h(f.size()) {
    for (size_t i = 0; i < f.size(); ++i) {
      f[i] = static_cast<float>((i * 2654435761u + seed * 40503u) >> 8 & 1023) / 512.0f - 1.0f;
      h[i] = to_bf16(f[i]);
    }
  }
  void* as(DType t) { return t == DType::bf16 ? static_cast<void*>(h.data()) : static_cast<void*>(f.data()); }
  std::vector<float> f;
  std::vector<bf16> h;
};

/// Best seconds of a call over samples of at least 10 ms: neighbours on the machine only ever add time.
template <class F>
double seconds(F&& f) {
  f();
  double t = now();
  f();
  t = now() - t;
  const int inner = std::max(1, static_cast<int>(0.01 / t));
  double best = 1e30;
  for (int r = 0; r < repetitions; ++r) {
    const double start = now();
    for (int i = 0; i < inner; ++i) f();
    best = std::min(best, (now() - start) / inner);
  }
  return best;
}

/// Percent of the best peak measured just before and just after.
template <class F>
double percent(double flops, F&& f) {
  const double before = fma_peak_gflops();
  const double t = seconds(f);
  const double after = fma_peak_gflops();
  return 100.0 * flops / t * 1e-9 / std::max(before, after);
}

/// Causal flops only: 2 products forward, 5 backward, over T (T + 1) / 2 pairs.
void attention_lines() {
  std::printf("%-26s percent of peak: forward, backward, both; bf16 storage: forward, backward, both\n",
              "attention");
  struct Case {
    const char* name;
    int64_t heads, kv_heads, width, length, documents;
  };
  for (const Case& s :
       {Case{"10M: 6 x 64, T 256", 6, 6, 64, 256, 12}, Case{"124M: 12 x 64, T 256", 12, 12, 64, 256, 4},
        Case{"12 x 64, T 1024", 12, 12, 64, 1024, 1}, Case{"8/2 x 128, T 1024", 8, 2, 128, 1024, 2},
        Case{"8/2 x 64, T 256", 8, 2, 64, 256, 8}, Case{"6 x 64, T 64", 6, 6, 64, 64, 48},
        Case{"8/2 x 128, T 4096", 8, 2, 128, 4096, 1}}) {
    const int64_t rows = s.length * s.documents, stride = (s.heads + 2 * s.kv_heads) * s.width;
    Data qkv(rows * stride, 1), d_o(rows * s.heads * s.width, 2), o(rows * s.heads * s.width, 3),
        d_qkv(rows * stride, 4);
    std::vector<float> lse(static_cast<size_t>(rows * s.heads));
    std::vector<AttentionSpan> spans;
    for (int64_t d = 0; d < s.documents; ++d) spans.push_back({d * s.length, s.length});
    std::printf("%-26s", s.name);
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto column = [&](Data& x, int64_t c) {
        return static_cast<void*>(static_cast<char*>(x.as(type)) + c * size_of(type));
      };
      AttentionBackwardArgs b;
      AttentionArgs& a = b.forward;
      a.heads = s.heads;
      a.kv_heads = s.kv_heads;
      a.width = s.width;
      a.scale = 0.125f;
      a.spans = spans.data();
      a.span_count = s.documents;
      a.type = a.o_type = b.d_type = type;
      a.q = column(qkv, 0);
      a.k = column(qkv, s.heads * s.width);
      a.v = column(qkv, (s.heads + s.kv_heads) * s.width);
      a.q_stride = a.k_stride = a.v_stride = b.d_q_stride = b.d_k_stride = b.d_v_stride = stride;
      a.o = o.as(type);
      a.o_stride = b.d_o_stride = s.heads * s.width;
      a.lse = lse.data();
      b.d_o = d_o.as(type);
      b.d_q = column(d_qkv, 0);
      b.d_k = column(d_qkv, s.heads * s.width);
      b.d_v = column(d_qkv, (s.heads + s.kv_heads) * s.width);
      const double pairs = double(s.documents * s.heads) * double(s.length) * double(s.length + 1) / 2;
      const double one = 2.0 * pairs * double(s.width);
      std::printf(" %5.1f", percent(2 * one, [&] { attention_forward(a); }));
      std::printf(" %5.1f", percent(5 * one, [&] { attention_backward(b); }));
      std::printf(" %5.1f |", percent(7 * one, [&] {
                    attention_forward(a);
                    attention_backward(b);
                  }));
    }
    std::printf("\n");
  }
}

/// The same product with more and more rows (their bits do not change with the number), weights as [out, in].
void rows_lines() {
  std::printf("%-30s", "rows, n 2304, k 768, f32:");
  const int64_t n = 2304, k = 768, most = 4096;
  Data a(most * k, 1), b(n * k, 2), c(most * n, 3);
  for (const int64_t m : {1, 8, 32, 128, 512, 4096}) {
    GemmArgs g;
    g.m = m;
    g.n = n;
    g.k = g.lda = g.ldb = k;
    g.a = a.f.data();
    g.b = b.f.data();
    g.b_transposed = true;
    g.c = c.f.data();
    g.ldc = n;
    std::printf("  m=%ld %.1f%%", long(m),
                percent(2.0 * double(m) * double(n) * double(k), [&] { gemm(g); }));
  }
  std::printf("\n");
}

/// One new row per document against a cache of pages: bytes of keys and values read per second.
void attention_decode_line() {
  const int64_t heads = 8, kv_heads = 2, width = 128, documents = 16, past = 1023, row = kv_heads * width;
  std::printf("decode: %ld documents, 1024 keys, 8/2 x 128:", long(documents));
  Data q(documents * heads * width, 1), o(documents * heads * width, 2), k(documents * (past + 1) * row, 3),
      v(documents * (past + 1) * row, 4);
  for (const DType type : {DType::f32, DType::bf16}) {
    std::vector<const void*> k_blocks, v_blocks;
    for (int64_t b = 0; b < documents * (past + 1) / kAttentionBlock; ++b) {
      k_blocks.push_back(static_cast<char*>(k.as(type)) + b * kAttentionBlock * row * size_of(type));
      v_blocks.push_back(static_cast<char*>(v.as(type)) + b * kAttentionBlock * row * size_of(type));
    }
    std::vector<AttentionSpan> spans;
    for (int64_t d = 0; d < documents; ++d) {
      const int64_t first = d * (past + 1) / kAttentionBlock;
      spans.push_back({d, 1, past, k_blocks.data() + first, v_blocks.data() + first});
    }
    AttentionArgs a;
    a.heads = heads;
    a.kv_heads = kv_heads;
    a.width = width;
    a.scale = 0.09f;
    a.spans = spans.data();
    a.span_count = documents;
    a.type = type;
    a.q = q.as(type);
    a.q_stride = a.o_stride = heads * width;
    a.k_stride = a.v_stride = row;
    a.o = o.f.data();
    const double t = seconds([&] { attention_forward(a); });
    std::printf("  %s %.1f GB/s", name_of(type),
                2.0 * double(documents * (past + 1) * row * size_of(type)) / t * 1e-9);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 2) repetitions = std::max(1, std::atoi(argv[2]));
  count_cpu = argc > 3 && std::string(argv[3]) == "cpu";
  const bool all = what == "all";
  const MachinePeak peak = machine_peak();
  std::printf("%s, %d threads: fma peak %.0f GFLOP/s, read %.1f GB/s\n", isa_name(active_isa()),
              num_threads(), peak.fma_gflops, peak.read_gbs);
  if (all || what == "rows") rows_lines();
  if (all || what == "attention") {
    attention_lines();
    attention_decode_line();
  }
  return 0;
}
