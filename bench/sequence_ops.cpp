// The ops along the sequence and the norm, forward and backward: milliseconds, GB/s (each tensor once),
// GFLOP/s, and how many times faster than the reference (timed on fewer rows, scaled by FLOPs). usage:
// ingot_bench_sequence_ops [repetitions [cpu]]; cpu: processor time, for a busy machine ($INGOT_THREADS=1)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/cpu/isa.h"
#include "ops/add_norm/add_norm.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/reference.h"

using namespace ingot;

namespace {

int repetitions = 5;
bool count_cpu = false;

double now() {
  return count_cpu ? static_cast<double>(std::clock()) / CLOCKS_PER_SEC : monotonic_seconds();
}

/// An op with inputs of its own; those not listed are absent.
struct Problem {
  Problem(const Op& op_, const AttrBox& attr_, const std::vector<TensorMeta>& metas) : op(op_), attr(attr_) {
    for (size_t i = 0; i < metas.size(); ++i) {
      const bool absent = metas[i].shape.rank() == 0;
      in.push_back(absent ? Tensor() : fill(metas[i], i));
      const bool wanted = !absent && op.inputs[i].kind != InputKind::data;
      const bool parameter = op.inputs[i].kind != InputKind::activation;
      d_in.push_back(
          {wanted ? fill({metas[i].shape, parameter ? DType::f32 : metas[i].dtype}, 50 + i) : Tensor(),
           false});
    }
    std::vector<TensorMeta> outputs(op.outputs.size());
    OpCall call{attr.data(), in, {}, {}, {}};
    op.infer(call, outputs);
    for (size_t o = 0; o < outputs.size(); ++o) {
      out.push_back(fill(outputs[o], 100 + o));
      d_out.push_back(op.outputs[o].differentiable && outputs[o].shape.numel() > 0 ? fill(outputs[o], 150 + o)
                                                                                   : Tensor());
    }
    call.out = out;
    scratch.resize(static_cast<size_t>(op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0) + 64);
  }

  Tensor fill(const TensorMeta& meta, size_t stream) {
    memory.emplace_back(static_cast<size_t>(meta.bytes()) + 64);
    const Tensor t(memory.back().data(), meta.shape, meta.dtype);
    const Random random(1, RandomPurpose::test, stream);
    if (meta.dtype == DType::i32) {
      for (int64_t i = 0; i < t.numel(); ++i) t.as<int32_t>()[i] = static_cast<int32_t>(i);
    } else {
      reference::Array values(static_cast<size_t>(t.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
      reference::store(t, values);
    }
    return t;
  }

  OpCall call() {
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    return {attr.data(), in, out, d_out, d_in, aligned};
  }

  double seconds(const Kernel& kernel, bool backward) {
    std::vector<double> samples;
    for (int i = 0; i < repetitions + 1; ++i) {
      const double start = now();
      (backward ? kernel.backward_input : kernel.forward)(call());
      samples.push_back(now() - start);
    }
    std::sort(samples.begin() + 1, samples.end());
    return samples[1 + static_cast<size_t>(repetitions) / 2];
  }

  const Op& op;
  AttrBox attr;
  std::vector<std::vector<std::byte>> memory;
  std::vector<Tensor> in, out, d_out;
  std::vector<GradSlot> d_in;
  std::vector<std::byte> scratch;
};

double bytes_of(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += t.defined() ? static_cast<double>(t.bytes()) : 0;
  return bytes;
}

/// One line; `make(rows)` gives the problem.
template <class Make>
void line(const char* name, int64_t rows, int64_t reference_rows, Make&& make) {
  Problem problem = make(rows), small = make(reference_rows);
  const OpCost cost = problem.op.cost(problem.call());
  std::printf("%-34s", name);
  for (const bool backward : {false, true}) {
    problem.op.kernels.front().forward(problem.call());
    const double fast = problem.seconds(problem.op.kernels.front(), backward);
    const double work = cost.forward_flops / small.op.cost(small.call()).forward_flops;
    const double slow = small.seconds(small.op.kernels.back(), backward) * work;
    double bytes = bytes_of(problem.in) + bytes_of(backward ? problem.d_out : problem.out);
    if (backward)
      for (const GradSlot& g : problem.d_in) bytes += g.wanted() ? static_cast<double>(g.tensor.bytes()) : 0;
    std::printf(" | %s %8.3f ms %6.1f GB/s %6.1f GFLOP/s %6.1fx", backward ? "bwd" : "fwd", fast * 1e3,
                bytes / fast / 1e9, (backward ? cost.backward_input_flops : cost.forward_flops) / fast / 1e9,
                slow / fast);
  }
  std::printf("\n");
}

void sequence_lines(DType type, int64_t rows, int64_t H, int64_t G, int64_t K) {
  const int64_t C = (H + G) * K, W = C + G * K;
  std::printf("%s, %ld rows, heads %ld/%ld x %ld\n", name_of(type), long{rows}, long{H}, long{G}, long{K});
  line("qk_prepare norm + rotary", rows, 64, [&](int64_t n) {
    return Problem(qk_prepare_op(), AttrBox(QkPrepareAttr{H, G, K, K, 1e4, true, 1e-6, type}),
                   {{{n, W}, type}, {{n}, DType::i32}, {{K}, DType::f32}, {{K}, DType::f32}});
  });
  line("qk_prepare rotary", rows, 64, [&](int64_t n) {
    return Problem(qk_prepare_op(), AttrBox(QkPrepareAttr{H, G, K, K, 1e4, false, 1e-6, type}),
                   {{{n, W}, type}, {{n}, DType::i32}, {}, {}});
  });
  line("attention, one document", rows, 256, [&](int64_t n) {
    return Problem(attention_op(), AttrBox(AttentionAttr{H, G, K}), {{{n, W}, type}});
  });
  line("cca", rows, 16, [&](int64_t n) {
    return Problem(cca_op(), AttrBox(CcaAttr{H, G, K, K / 2, 5e6, type, nullptr, 0}),
                   {{{n, W}, type},
                    {{n}, DType::i32},
                    {{C, 2}, DType::f32},
                    {{C}, DType::f32},
                    {{H + G, K, 2 * K}, type},
                    {{C}, DType::f32},
                    {{G}, DType::f32}});
  });
}

void norm_lines(DType type, int64_t rows, int64_t D) {
  std::printf("%s, %ld rows of %ld\n", name_of(type), long{rows}, long{D});
  for (const auto& [name, merge] : {std::pair{"rms_norm", MergeKind::none},
                                    {"add + rms_norm", MergeKind::add},
                                    {"scaled add + rms_norm", MergeKind::scaled}})
    line(name, rows, 1024, [&, m = merge](int64_t n) {
      const TensorMeta none, vector{{D}, DType::f32}, matrix{{n, D}, type};
      const bool y = m != MergeKind::none, scaled = m == MergeKind::scaled;
      return Problem(add_norm_op(), AttrBox(AddNormAttr{NormKind::rms, m, type, 1e-5}),
                     {{{n, D}, DType::f32},
                      y ? matrix : none,
                      scaled ? vector : none,
                      scaled ? vector : none,
                      scaled ? vector : none,
                      scaled ? vector : none,
                      vector,
                      none});
    });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) repetitions = std::max(1, std::atoi(argv[1]));
  count_cpu = argc > 2 && std::string(argv[2]) == "cpu";
  std::printf("%s, %d threads\n", isa_name(active_isa()), num_threads());
  for (const DType type : {DType::f32, DType::bf16}) {
    sequence_lines(type, 2048, 8, 2, 128);
    sequence_lines(type, 4096, 6, 2, 64);
    norm_lines(type, 4096, 768);
  }
  return 0;
}
