// What this machine can do at the moment: the measured peak behind every "% of roofline" in logs and
// benchmarks.
#pragma once

namespace ingot {

/// All threads together.
struct MachinePeak {
  double fma_gflops;  ///< fp32 fused multiply-adds from registers, 2 flops each
  double dot_gflops;  ///< products of bf16 operands (gemm.h); as fma_gflops without a dot product instruction
  double read_gbs;    ///< 1e9 bytes read per second, 48 MiB each: memory, with what a large cache keeps of it
};

/// Measures with `threads` threads of its own (0: num_threads()) for the active instruction set, in about 0.1
/// s. The best of several short runs, so that a busy minute at the start does not lower the peak of a whole
/// run. Not for use while kernels run.
MachinePeak machine_peak(int threads = 0);

/// Mean rates over `seconds` each, without a best of several: ranks that call one of them together and share
/// cores share its rate too, so that the sum over ranks is what the machine can do. `begin`: when they begin
/// (base/clock.h; agree_on_begin() of comm/agree.h), since a rank that began late would be alone at its end;
/// 0: now.
double shared_fma_gflops(double seconds, int threads = 0, double begin = 0);
double shared_read_gbs(double seconds, int threads = 0, double begin = 0);
/// Likewise, of 1e9 bytes copied per second as memory is: pieces of 4 MiB, each by a thread.
double shared_copy_gbs(double seconds, int threads = 0, double begin = 0);
/// Likewise, of one thread: how fast it has pages anew that were given back (device/memory/pages.h), as
/// gathered weights are: 1e9 bytes written to them per second.
double shared_fresh_gbs(double seconds, double begin = 0);

/// The first two as benchmarks use them, beside what they time: sustained, the median of 5 runs of about 3
/// ms, which see the same interrupts and clock as the work; 2 % less on a quiet machine. About 0.02 s each.
double fma_peak_gflops(int threads = 0);
double dot_peak_gflops(int threads = 0);

}  // namespace ingot
