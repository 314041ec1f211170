// How close attention, and products of few to many rows, come to the machine: shares of the fp32 peak, which
// is measured around each trial; medians. (`ingot bench gemm` measures the products of a model.) usage:
// ingot_bench_kernels [rows|attention|all] [trials]
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "device/attention/attention.h"
#include "device/gemm/gemm.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/peak_trial.h"
#include "report/table.h"

using namespace ingot;

namespace {

constexpr double kSeconds = 0.01;  // of a trial, at least
int trials = 5;

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

/// The share of the fp32 peak: median of the trials.
template <class F>
double share(double flops, F&& f) {
  std::vector<double> peaks;
  PeakTimer timer(peaks);
  std::vector<PeakTrial> all;
  for (int t = 0; t < trials; ++t) all.push_back(timer(kSeconds, f));
  return spread_over(all, [&](const PeakTrial& t) { return flops / t.seconds / (1e9 * t.peak_gflops); })
      .median;
}

/// Counts the pairs that the causal mask leaves: 2 products forward and 5 backward over T (T + 1) / 2 pairs.
void bench_attention() {
  std::vector<Column> columns{words("attention")};
  for (const char* type : {"f32", "bf16"})
    for (const char* what : {"forward", "backward", "both"})
      columns.push_back({.title = what, .format = "{:.1f}%", .scale = 100, .group = type});
  Table table(std::move(columns));
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
    std::vector<Cell> cells{s.name};
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
      cells.push_back(share(2 * one, [&] { attention_forward(a); }));
      cells.push_back(share(5 * one, [&] { attention_backward(b); }));
      cells.push_back(share(7 * one, [&] {
        attention_forward(a);
        attention_backward(b);
      }));
    }
    table.add(std::move(cells));
  }
  std::cout << text_of({table});
}

/// The same product with more and more rows (their bits do not change with the number), weights as [out, in].
void bench_rows() {
  Table table({{.title = "rows"}, percent("of P")}, "products: n 2304, k 768, f32");
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
    table.add({m, share(2.0 * double(m) * double(n) * double(k), [&] { gemm(g); })});
  }
  std::cout << text_of({table});
}

/// One new row per document against a cache of pages: bytes of keys and values read per second.
void bench_attention_decode() {
  const int64_t heads = 8, kv_heads = 2, width = 128, documents = 16, past = 1023, row = kv_heads * width;
  Table table({words("type"), number("GB/s", 1, 1e-9)},
              "attention of new tokens: 16 documents, 1024 keys, 8/2 x 128");
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
    std::vector<double> seconds;
    for (int t = 0; t < trials; ++t)
      seconds.push_back(mean_call_seconds(kSeconds, [&] { attention_forward(a); }));
    table.add({name_of(type),
               2.0 * double(documents * (past + 1) * row * size_of(type)) / spread_of(seconds).median});
  }
  std::cout << text_of({table});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 2) trials = std::max(1, std::atoi(argv[2]));
  const bool all = what == "all";
  const MachinePeak peak = machine_peak();
  std::cout << fmt::format("{}, {} threads: fma peak {:.0f} GFLOP/s, read {:.1f} GB/s\n",
                           isa_name(active_isa()), num_threads(), peak.fma_gflops, peak.read_gbs);
  if (all || what == "rows") bench_rows();
  if (all || what == "attention") {
    bench_attention();
    bench_attention_decode();
  }
  return 0;
}
