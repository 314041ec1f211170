// Optimizer speed: AdamW and the gradient norm against the memory bandwidth, Newton-Schulz against the fp32
// peak and against the same iteration with plain products. Medians of interleaved trials. usage:
// ingot_bench_optim [trials]
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/spread.h"
#include "device/gemm/gemm.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/read_rate.h"
#include "optim/clip.h"
#include "optim/kernels.h"
#include "optim/optimizer.h"
#include "report/table.h"

using namespace ingot;

namespace {

int trials = 7;

/// Median seconds of each function; a first call of each does not count.
std::vector<double> seconds(const std::vector<std::function<void()>>& functions) {
  for (const auto& f : functions) f();
  const auto times = interleaved(trials, functions.size(), [&](size_t i) {
    const double start = monotonic_seconds();
    functions[i]();
    return monotonic_seconds() - start;
  });
  std::vector<double> medians;
  for (const auto& t : times) medians.push_back(spread_of(t).median);
  return medians;
}

void fill(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>((i * 2654435761 >> 8) & 1023) / 512.0f - 1.0f;
}

void element_wise() {
  const int64_t n = int64_t{1} << 24;
  FloatBuffer w(n), g(n), m(n), v(n), copy(n);
  fill(w.data(), n);
  fill(g.data(), n);
  ParamView p{"w", {n}, 1, {}, w.data(), g.data(), copy.data(), DType::bf16};
  const AdamWTensor tensor{&p, m.data(), v.data(), 1e-3, 0.1};
  int64_t t = 0;
  // The plainest pass that reads and writes memory: x <- s x in place.
  const auto in_place = [&] {
    parallel_for(n / kOptimChunk, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* x = copy.data() + i * kOptimChunk;
        INGOT_ISA_CALL(scale_chunk)(x, x, kOptimChunk, 1.0f);
      }
    });
  };
  const std::vector<double> s = seconds({[&] {
                                           adamw_step({&tensor, 1}, {}, ++t, 1.0);
                                         },
                                         [&] {
                                           gradient_norm({&p, 1}, 1.0);
                                         },
                                         in_place});
  const double size = static_cast<double>(n) * 1e-9;
  const double in_place_gbs = 8 * size / s[2], read_gbs = 1e-9 * ReadRate(num_threads())();
  Table table({words("16 Mi parameters"),
               number("GB/s", 1),
               {.title = "of the limit", .format = "{:.0f}%", .scale = 100}});
  table.add({"limit: read and write in place", in_place_gbs, {}});
  table.add({"limit: read", read_gbs, {}});
  table.add({"AdamW (30 bytes a parameter)", 30 * size / s[0], 30 * size / s[0] / in_place_gbs});
  table.add({"gradient norm (4 bytes)", 4 * size / s[1], 4 * size / s[1] / read_gbs});
  std::cout << text_of({table});
}

/// Newton-Schulz with plain products instead of symmetric ones (wide matrices only).
void plain_newton_schulz(float* g, int64_t r, int64_t c, NewtonSchulzScratch& scratch) {
  scratch.reserve(r, c);
  const auto product = [](float* out, const float* a, const float* b, bool transposed, int64_t m, int64_t k,
                          int64_t n, bool accumulate) {
    GemmArgs args;
    args.m = m, args.n = n, args.k = k;
    args.a = a, args.lda = k;
    args.b = b, args.b_transposed = transposed, args.ldb = transposed ? k : n;
    args.c = out, args.ldc = n, args.accumulate = accumulate;
    gemm(args);
  };
  const double norm = std::sqrt(INGOT_ISA_CALL(sum_squares_chunk)(g, r * c));
  INGOT_ISA_CALL(scale_chunk)(g, g, r * c, static_cast<float>(1 / norm));
  float* x = g;
  float* y = scratch.x();
  for (int step = 0; step < 5; ++step) {
    product(scratch.square(0), x, x, true, r, c, r, false);
    product(scratch.square(1), scratch.square(0), scratch.square(0), true, r, r, r, false);
    INGOT_ISA_CALL(combine_chunk)(scratch.square(1), scratch.square(0), r * r, -4.7750f, 2.0315f);
    INGOT_ISA_CALL(scale_chunk)(y, x, r * c, 3.4445f);
    product(y, scratch.square(1), x, false, r, r, c, true);
    std::swap(x, y);
  }
  std::copy(x, x + r * c, g);
}

struct Case {
  int64_t matrices, rows, cols;
};

void muon() {
  Table table({words("Newton-Schulz"),
               number("ms", 2, 1e3),
               {.title = "of P", .format = "{:.0f}%", .scale = 100},
               number("plain ms", 2, 1e3),
               number("plain / ours", 2),
               number("step ms", 2, 1e3),
               number("bf16 step ms", 2, 1e3),
               number("bf16 step / plain", 2)});
  for (const Case& c : {Case{1, 384, 384}, Case{1, 384, 1536}, Case{1, 1536, 384}, Case{1, 1024, 1024},
                        Case{16, 256, 512}, Case{16, 64, 128}}) {
    const int64_t numel = c.rows * c.cols, n = c.matrices * numel;
    FloatBuffer w(n), g(n), copy(n), a(n), b(n);
    fill(g.data(), n);
    fill(w.data(), n);
    ParamView p{"w",         c.matrices > 1 ? Shape{c.matrices, c.rows, c.cols} : Shape{c.rows, c.cols},
                c.matrices,  {},
                w.data(),    g.data(),
                copy.data(), DType::bf16};
    Optimizer optimizer({}, {p});
    OptimizerConfig in_bf16;
    in_bf16.muon.newton_schulz.precision = NewtonSchulzPrecision::bf16;
    Optimizer fast(in_bf16, {p});
    std::vector<NewtonSchulzScratch> scratch(static_cast<size_t>(c.matrices));
    const auto each = [&](float* x, bool plain) {
      std::copy(g.data(), g.data() + n, x);
      const auto one = [&](int64_t i) {
        if (plain)
          plain_newton_schulz(x + i * numel, std::min(c.rows, c.cols), std::max(c.rows, c.cols),
                              scratch[static_cast<size_t>(i)]);
        else
          newton_schulz(x + i * numel, c.rows, c.cols, {}, scratch[static_cast<size_t>(i)]);
      };
      if (c.matrices == 1)
        one(0);
      else
        parallel_for(c.matrices, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) one(i);
        });
    };
    const double before = fma_peak_gflops();
    const std::vector<double> s =
        seconds({[&] { each(a.data(), false); }, [&] { each(b.data(), true); },
                 [&] { optimizer.step({.lr = 1e-3}); }, [&] { fast.step({.lr = 1e-3}); }});
    const double peak = std::max(before, fma_peak_gflops());
    const double flops = static_cast<double>(c.matrices) * newton_schulz_flops(c.rows, c.cols, 5);
    table.add({fmt::format("{} x [{}, {}]", c.matrices, c.rows, c.cols), s[0], flops / s[0] * 1e-9 / peak,
               s[1], s[1] / s[0], s[2], s[3], s[3] / s[1]});
  }
  std::cout << text_of({table});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) trials = std::max(1, std::atoi(argv[1]));
  std::cout << fmt::format("{}, {} threads, medians of {} interleaved trials\n", isa_name(active_isa()),
                           num_threads(), trials);
  element_wise();
  muon();
  return 0;
}
