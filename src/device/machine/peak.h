// What this machine can do right now: the denominator of every "% of speed of light" in logs and benchmarks.
#pragma once

namespace ingot {

struct MachinePeak {
  double fma_gflops;  ///< fp32 fused multiply-adds from registers, 2 flops each, all threads together
  double
      dot_gflops;  ///< the same for products of bf16 operands (gemm.h): as fma_gflops without a dot product
  double
      read_gbs;  ///< bytes read per second, all threads together, of 48 MiB each: memory, with what a large cache keeps of it
};

/// Measures with `threads` threads of the pool's kind (0: num_threads()) for the active instruction set, in
/// about 0.1 s: what the machine gives undisturbed, so that a busy minute at the start does not lower a whole
/// run's speed of light (the best of several short runs). Starts its own threads; not for use while kernels
/// run.
MachinePeak machine_peak(int threads = 0);

/// The first two as benchmarks want them, beside what they time: sustained, the median of 5 runs of some 3
/// ms, which meet the interrupts and the clock that work meets; 2 % less on a quiet machine. In about 0.02 s
/// each.
double fma_peak_gflops(int threads = 0);
double dot_peak_gflops(int threads = 0);

}  // namespace ingot
