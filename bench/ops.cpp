// Every op of all_ops(), forward and backward: milliseconds, GB/s (each tensor once), GFLOP/s, percent of the
// speed of light (the larger of bytes at the measured bandwidth and FLOPs at the measured peak), and how many
// times faster than the reference (timed on fewer rows, scaled). Ends with the ops slower than 3 references.
// usage: ingot_bench_ops [repetitions [cpu|wall [name]]]; cpu: processor time, for a busy machine ($INGOT_THREADS=1);
// name: only the lines that begin so
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "device/cpu/isa.h"
#include "device/cpu/peak.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/add_norm/add_norm.h"
#include "ops/assign/assign.h"
#include "ops/attention/attention.h"
#include "ops/capacity/capacity.h"
#include "ops/cca/cca.h"
#include "ops/embedding/embedding.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/head/head.h"
#include "ops/linear/linear.h"
#include "ops/low_rank/low_rank.h"
#include "ops/mix/mix.h"
#include "ops/mla/mla.h"
#include "ops/permute/permute.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/reference.h"
#include "ops/route/route.h"
#include "ops/sequence/sequence_store.h"
#include "ops/route/sequence_balance.h"

using namespace ingot;

namespace {

int repetitions = 5;
bool count_cpu = false;
std::string only;
MachinePeak peak;
std::set<std::string> timed, slow_ops;

double now() {
  return count_cpu ? static_cast<double>(std::clock()) / CLOCKS_PER_SEC : monotonic_seconds();
}

/// An op with inputs of its own; those not listed are absent.
struct Problem {
  /// The i-th integer input holds ints[i] if that is given, else 0, 1, 2, ...
  Problem(const Op& op_, const AttrBox& attr_, const std::vector<TensorMeta>& metas,
          const std::vector<std::vector<int32_t>>& ints = {})
      : op(op_), attr(attr_) {
    size_t integer = 0;
    for (size_t i = 0; i < metas.size(); ++i) {
      const bool absent = metas[i].shape.rank() == 0;
      in.push_back(absent ? Tensor() : fill(metas[i], i));
      if (!absent && metas[i].dtype == DType::i32 && integer < ints.size()) {
        std::copy(ints[integer].begin(), ints[integer].end(), in.back().as<int32_t>());
        ++integer;
      }
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
    for (const auto& gradients : {std::vector<GradSlot>(), d_in}) {
      call.d_in = gradients;
      if (!gradients.empty()) call.d_out = d_out;
      const int64_t bytes = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
      scratch.resize(std::max(scratch.size(), static_cast<size_t>(bytes) + 64));
    }
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
    if (before) before();
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    return {attr.data(), in, out, d_out, d_in, aligned};
  }

  double seconds(const Kernel& kernel, bool backward) {
    std::vector<double> samples;
    for (int i = 0; i < repetitions + 1; ++i) {
      const double start = now();
      if (!backward) kernel.forward(call());
      if (backward && kernel.backward_input != nullptr) kernel.backward_input(call());
      if (backward && kernel.backward_weight != nullptr) kernel.backward_weight(call());
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
  std::function<void()> before;  ///< restores what a call changes besides its outputs
};

double bytes_of(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += t.defined() ? static_cast<double>(t.bytes()) : 0;
  return bytes;
}

/// What one direction reads and writes, each tensor once, as far as the kernels need it.
double traffic(const Problem& p, bool backward) {
  if (!backward) return bytes_of(p.in) + bytes_of(p.out);
  double bytes = bytes_of(p.d_out);
  const BackwardReads reads = p.op.reads(p.attr.data());
  for (size_t i = 0; i < p.in.size(); ++i)
    if ((reads.input_in | reads.weight_in) >> i & 1u)
      bytes += p.in[i].defined() ? static_cast<double>(p.in[i].bytes()) : 0;
  for (const GradSlot& g : p.d_in) bytes += g.wanted() ? static_cast<double>(g.tensor.bytes()) : 0;
  return bytes;
}

/// One line; `make(rows)` gives the problem. References that are slow per row are timed on fewer rows; those that only
/// move rows are timed on all, since a few rows would stay in the cache that the kernel's do not fit in.
template <class Make>
void line(const char* name, int64_t rows, int64_t reference_rows, Make&& make) {
  if (std::string(name).rfind(only, 0) != 0) return;
  Problem problem = make(rows), small = make(reference_rows);
  const OpCost cost = problem.op.cost(problem.call()), small_cost = small.op.cost(small.call());
  timed.insert(problem.op.name);
  std::printf("%-30s", name);
  double all_fast = 0, all_slow = 0;
  small.op.kernels.back().forward(small.call());
  for (const bool backward : {false, true}) {
    problem.op.kernels.front().forward(problem.call());
    const double fast = problem.seconds(problem.op.kernels.front(), backward);
    const double scale = cost.forward_flops > 0
                             ? cost.forward_flops / small_cost.forward_flops
                             : static_cast<double>(rows) / static_cast<double>(reference_rows);
    const double slow = small.seconds(small.op.kernels.back(), backward) * scale;
    const double bytes = traffic(problem, backward);
    const double flops =
        backward ? cost.backward_input_flops + cost.backward_weight_flops : cost.forward_flops;
    const double light = std::max(bytes / peak.read_gbs, flops / peak.fma_gflops) * 1e-9;
    std::printf(" | %s %8.3f ms %5.1f GB/s %6.1f GF/s %4.0f%% %7.1fx", backward ? "bwd" : "fwd", fast * 1e3,
                bytes / fast / 1e9, flops / fast / 1e9, 100 * light / fast, slow / fast);
    all_fast += fast, all_slow += slow;
  }
  std::printf(" | %7.1fx\n", all_slow / all_fast);
  std::fflush(stdout);
  if (all_slow < 3 * all_fast) slow_ops.insert(problem.op.name);
}

void sequence_lines(DType type, int64_t rows, int64_t H, int64_t G, int64_t K) {
  const int64_t C = (H + G) * K, W = C + G * K;
  std::printf("%s, %ld rows, heads %ld/%ld x %ld\n", name_of(type), long{rows}, long{H}, long{G}, long{K});
  line("qk_prepare norm + rotary", rows, 64, [&](int64_t n) {
    return Problem(qk_prepare_op(), AttrBox(QkPrepareAttr{H, G, K, {1e4, K}, true, 1e-6, type}),
                   {{{n, W}, type}, {{n}, DType::i32}, {{K}, DType::f32}, {{K}, DType::f32}});
  });
  line("qk_prepare rotary", rows, 64, [&](int64_t n) {
    return Problem(qk_prepare_op(), AttrBox(QkPrepareAttr{H, G, K, {1e4, K}, false, 1e-6, type}),
                   {{{n, W}, type}, {{n}, DType::i32}, {}, {}});
  });
  line("attention, one document", rows, 256, [&](int64_t n) {
    return Problem(attention_op(), AttrBox(AttentionAttr{H, G, K}), {{{n, W}, type}});
  });
  const int64_t rank = 4 * K, rope = K / 2;
  line("mla_latents", rows, rows, [&](int64_t n) {
    return Problem(mla_latents_op(), AttrBox(MlaLatentsAttr{rank, rank, rope, {1e4, rope}, 1e-6, type}),
                   {{{n, 2 * rank + rope}, type}, {{n}, DType::i32}, {{rank}, DType::f32}, {{rank}, DType::f32}});
  });
  line("mla_pack", rows, rows, [&](int64_t n) {
    return Problem(mla_pack_op(), AttrBox(MlaPackAttr{H, K, rope, K, {1e4, rope}}),
                   {{{n, H * (K + rope)}, type}, {{n}, DType::i32}, {{n, H * 2 * K}, type}, {{n, rope}, type}});
  });
  line("cca", rows, 16, [&](int64_t n) {
    return Problem(cca_op(), AttrBox(CcaAttr{H, G, K, {5e6, K / 2}, type, nullptr, 0}),
                   {{{n, W}, type},
                    {{n}, DType::i32},
                    {{C, 2}, DType::f32},
                    {{C}, DType::f32},
                    {{H + G, K, 2 * K}, type},
                    {{C}, DType::f32},
                    {{G}, DType::f32}});
  });
}

/// One more token of a latent attention sequence of `past` tokens.
void cached_lines(DType type, int64_t past, int64_t H, int64_t K) {
  const int64_t rank = 4 * K, rope = K / 2;
  SequenceStore store({1, 1, rank + rope, type, 0, 0, 0, 0}, 1000);
  SequenceState prefix = store.create(), state = store.create();
  std::printf("%s, %ld tokens in the cache, %ld heads of %ld + %ld\n", name_of(type), long{past}, long{H}, long{K}, long{rope});
  for (const bool absorb : {false, true}) {
    Rows rows;
    const auto problem = [&](int64_t n, int64_t from, SequenceState& to) {
      rows = {n, {{0, n, from, &to}}};
      return Problem(mla_cached_op(), AttrBox(MlaCachedAttr{H, K, rope, K, rank, 0.1, 0, 0, &rows, 0, absorb}),
                     {{{n, H * (K + rope)}, type}, {{n, rank}, type}, {{n, rope}, type}, {{H * 2 * K, rank}, type}});
    };
    prefix = store.create();
    Problem fill = problem(past, 0, prefix);
    fill.op.kernels.front().forward(fill.call());
    line(absorb ? "mla_cached absorbed" : "mla_cached materialised", 1, 1, [&](int64_t n) {
      Problem p = problem(n, past, state);
      p.before = [&] { state = prefix.fork(); };
      return p;
    });
  }
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

void dense_lines(DType type, int64_t rows, int64_t D, int64_t V) {
  std::printf("%s, %ld rows of %ld, vocabulary %ld\n", name_of(type), long{rows}, long{D}, long{V});
  const TensorMeta none;
  line("linear D -> 4D", rows, 64, [&](int64_t n) {
    return Problem(linear_op(), AttrBox(LinearAttr{type}), {{{n, D}, type}, {{4 * D, D}, type}, none});
  });
  line("linear 4D -> D, bias", rows, 64, [&](int64_t n) {
    return Problem(linear_op(), AttrBox(LinearAttr{type}),
                   {{{n, 4 * D}, type}, {{D, 4 * D}, type}, {{D}, DType::f32}});
  });
  for (const auto& [name, kind] : {std::pair{"gelu", ActivationKind::gelu},
                                   {"gelu_tanh", ActivationKind::gelu_tanh},
                                   {"relu2", ActivationKind::relu2},
                                   {"silu", ActivationKind::silu},
                                   {"swiglu", ActivationKind::swiglu}})
    line(name, rows, 256, [&, k = kind](int64_t n) {
      return Problem(activation_op(), AttrBox(ActivationAttr{k, type}),
                     {{{n, is_gated(k) ? 8 * D : 4 * D}, type}, none});
    });
  line("add", rows, 1024, [&](int64_t n) {
    return Problem(add_op(), AttrBox(AddAttr{type, false}), {{{n, D}, type}, {{n, D}, type}, none});
  });
  line("add gated", rows, 1024, [&](int64_t n) {
    return Problem(add_op(), AttrBox(AddAttr{type, true}),
                   {{{n, D}, type}, {{n, D}, type}, {{D}, DType::f32}});
  });
  line("low_rank", rows, 256, [&](int64_t n) {
    return Problem(low_rank_op(), AttrBox(LowRankAttr{2.0, type, 1, {D}}), {{{n, D}, type}, {{n, 16}, type}, {{D, 16}, type}});
  });
  line("mix", rows, rows, [&](int64_t n) {
    return Problem(mix_op(), AttrBox(MixAttr{type, 0, true, true}),
                   {{{n, D}, type}, {{n, D}, type}, {{1}, DType::f32}, {{1}, DType::f32}});
  });
  const auto ids = [&](int64_t n) {
    std::vector<int32_t> all;
    for (int64_t t = 0; t < n; ++t) all.push_back(static_cast<int32_t>(t * 7919 % V));
    return all;
  };
  line("embedding", rows, rows, [&](int64_t n) {
    return Problem(embedding_op(), AttrBox(EmbeddingAttr{}), {{{n}, DType::i32}, {{V, D}, type}}, {ids(n)});
  });
  for (const auto& [name, mode] : {std::pair{"head store", HeadMode::store},
                                   {"head recompute", HeadMode::recompute},
                                   {"head gradient", HeadMode::gradient}})
    line(name, rows, 32, [&, m = mode](int64_t n) {
      return Problem(head_op(), AttrBox(HeadAttr{m}),
                     {{{n, D}, type},
                      {{V, D}, type},
                      {{n}, DType::i32},
                      none,
                      m == HeadMode::gradient ? TensorMeta{{n}, DType::f32} : none},
                     {ids(n)});
    });
}

void expert_lines(DType type, int64_t rows, int64_t D, int64_t hidden, int32_t E, int64_t k) {
  std::printf("%s, %ld rows of %ld, top %ld of %d experts of %ld\n", name_of(type), long{rows}, long{D},
              long{k}, E, long{hidden});
  const TensorMeta none;
  line("route", rows, 512, [&](int64_t n) {
    return Problem(route_op(), AttrBox(RouteAttr{.experts = E, .k = static_cast<int32_t>(k)}),
                   {{{n, E}, DType::f32}, none, none, none});
  });
  const RouteAttr groups{.score = RouteScore::sigmoid, .normalize = true, .experts = E, .k = static_cast<int32_t>(k),
                         .groups = 4, .groups_kept = 2};
  line("route sigmoid, groups", rows, 512, [&](int64_t n) {
    return Problem(route_op(), AttrBox(groups), {{{n, E}, DType::f32}, none, none, none});
  });
  line("sequence_balance", rows, 512, [&](int64_t n) {
    const RouteAttr scores{.experts = E, .k = static_cast<int32_t>(k)};
    return Problem(sequence_balance_op(), AttrBox(SequenceBalanceAttr{scores, nullptr}), {{{n, E}, DType::f32}});
  });
  for (const auto& [name, rule] : {std::pair{"assign sinkhorn", AssignRule::sinkhorn},
                                   {"assign expert_choice", AssignRule::expert_choice}})
    line(name, rows, 512, [&, r = rule](int64_t n) {
      return Problem(assign_op(), AttrBox(AssignAttr{r, false, static_cast<int32_t>(k), 1.0}), {{{n, E}, DType::f32}});
    });
  // Choice j of token t is expert (5 t + j) mod E; its row comes from a plain counting sort.
  const auto choices = [&](int64_t n) {
    std::vector<int32_t> all;
    for (int64_t t = 0; t < n; ++t)
      for (int64_t j = 0; j < k; ++j) all.push_back(static_cast<int32_t>((5 * t + j) % E));
    return all;
  };
  line("capacity", rows, 512, [&](int64_t n) {
    return Problem(capacity_op(), AttrBox(CapacityAttr{E, 0.75, false}), {{{n, k}, DType::f32}, {{n, k}, DType::i32}},
                   {choices(n)});
  });
  line("permute", rows, rows, [&](int64_t n) {
    return Problem(permute_op(), AttrBox(PermuteAttr{0, E}),
                   {{{n, D}, type}, {{n, k}, DType::f32}, {{n, k}, DType::i32}}, {choices(n)});
  });
  line("unpermute", rows, rows, [&](int64_t n) {
    const auto ids = choices(n);
    std::vector<int32_t> row(ids.size()), token(ids.size());
    int32_t next = 0;
    for (int32_t e = 0; e < E; ++e)
      for (size_t s = 0; s < ids.size(); ++s)
        if (ids[s] == e)
          token[static_cast<size_t>(next)] = static_cast<int32_t>(s) / static_cast<int32_t>(k),
          row[s] = next++;
    return Problem(unpermute_op(), AttrBox(UnpermuteAttr{type}),
                   {{{n * k, D}, type}, {{n, k}, DType::i32}, {{n * k}, DType::i32}}, {row, token});
  });
  line("grouped_linear", rows * k, 64, [&](int64_t n) {
    std::vector<int32_t> offsets;
    for (int32_t e = 0; e <= E; ++e) offsets.push_back(static_cast<int32_t>(n * e / E));
    return Problem(grouped_linear_op(), AttrBox(GroupedLinearAttr{type}),
                   {{{n, D}, type}, {{E, hidden, D}, type}, {{E + 1}, DType::i32}}, {offsets});
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) repetitions = std::max(1, std::atoi(argv[1]));
  count_cpu = argc > 2 && std::string(argv[2]) == "cpu";
  if (argc > 3) only = argv[3];
  peak = machine_peak();
  std::printf("%s, %d threads, %.0f GFLOP/s, %.1f GB/s\n", isa_name(active_isa()), num_threads(),
              peak.fma_gflops, peak.read_gbs);
  for (const DType type : {DType::f32, DType::bf16}) {
    sequence_lines(type, 2048, 8, 2, 128);
    sequence_lines(type, 4096, 6, 2, 64);
    cached_lines(type, 512, 8, 64);
    norm_lines(type, 4096, 768);
    dense_lines(type, 3072, 384, 65);
    dense_lines(type, 1024, 768, 8192);
    expert_lines(type, 4096, 512, 512, 16, 2);
  }
  for (const Op* op : all_ops())
    if (only.empty() && timed.count(op->name) == 0) std::printf("not timed: %s\n", op->name);
  for (const std::string& name : slow_ops) std::printf("less than 3 times its reference: %s\n", name.c_str());
  return slow_ops.empty() ? 0 : 1;
}
