// See op_check.h.
#include "support/op_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/philox.h"
#include "device/gpu/emulator.h"
#include "device/simd/isa.h"
#include "ops/gpu_proof.h"
#include "ops/gpu_registry.h"
#include "ops/reference.h"
#include "support/on_device.h"
#include "support/other_threads.h"
#include "support/tensor_compare.h"

namespace ingot::test {
namespace {

using reference::Array;

/// Owned tensors of one execution.
class Tensors {
 public:
  Tensor add(const TensorMeta& meta) {
    memory_.emplace_back(static_cast<size_t>(meta.bytes()) + kBeyond);
    return Tensor(memory_.back().data(), meta);
  }
  /// Whether nobody wrote beyond the end of any.
  bool are_within_bounds() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const auto& m) {
      return std::all_of(m.end() - kBeyond, m.end(), [](std::byte b) { return b == std::byte{0}; });
    });
  }

  static constexpr int kBeyond = 64;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

TensorMeta as_double(TensorMeta m) {
  if (is_floating(m.dtype)) m.dtype = DType::f64, m.format = nullptr;
  return m;
}

/// Forward and backward of one case in one precision with one kernel.
class Run {
 public:
  Run(const OpCase& c, bool in_double, int64_t rows = -1, const Kernel* kernel = nullptr)
      : case_(c), in_double_(in_double), kernel_(kernel) {
    for (size_t i = 0; i < c.inputs.size(); ++i) add_input(i, rows);
    std::vector<TensorMeta> metas(c.op->outputs.size());
    OpCall call = base_call();
    c.op->infer(call, metas);
    for (const TensorMeta& m : metas) out_.push_back(tensors_.add(m));
    const int64_t scratch = c.op->scratch_bytes != nullptr ? c.op->scratch_bytes(full_call()) : 0;
    scratch_.resize(static_cast<size_t>(scratch) + 64, std::byte{0xff});
  }

  OpCall full_call() {
    OpCall call = base_call();
    call.out = out_;
    call.scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch_.data()) + 63) / 64 * 64);
    return call;
  }

  const Kernel& kernel() {
    if (kernel_ != nullptr) return *kernel_;
    if (in_double_) return case_.op->kernels.back();
    return case_.op->kernels.front();
  }

  void forward() {
    run(kernel().forward, full_call());
    clear_beyond_live_rows(*case_.op, full_call());
  }

  /// Cotangents: N(0, 1) by output and element. Gradients of every differentiable input; `preload` fills the
  /// slots first and accumulates.
  void backward(double preload = 0, bool accumulate = false) {
    std::vector<Tensor> d_out(out_.size());
    for (size_t o = 0; o < out_.size(); ++o) {
      if (!case_.op->outputs[o].differentiable) continue;
      d_out[o] = tensors_.add(out_[o].meta);
      reference::store(d_out[o], cotangent(o));
    }
    d_in_.clear();
    for (size_t i = 0; i < in_.size(); ++i) {
      if (!in_[i].defined() || case_.op->inputs[i].kind == InputKind::data) {
        d_in_.emplace_back();
        continue;
      }
      TensorMeta meta = in_[i].meta;
      if (case_.op->inputs[i].kind != InputKind::activation && meta.dtype == DType::bf16)
        meta.dtype = DType::f32, meta.format = nullptr;
      d_in_.push_back({tensors_.add(meta), accumulate});
      reference::store(d_in_.back().tensor, Array(static_cast<size_t>(meta.shape.numel()), preload));
    }
    run_direction(d_out, false);
    run_direction(d_out, true);
  }

  /// Why the kernel does not take the case; nullptr: it does.
  const char* refusal() {
    const OpCall call = full_call();
    if (kernel().device != DeviceKind::cuda) return kernel().refuse(call);
    return kernel().refuse(OnDevice(kernel().device, *case_.op, call, Tensors::kBeyond).call());
  }

  Array cotangent(size_t o) const {
    const Random random(case_.seed, RandomPurpose::test, 1000 + o);
    Array values(static_cast<size_t>(out_[o].numel()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = to_float(to_bf16(static_cast<float>(random.normal(i))));
    return values;
  }

  double objective() const {
    double sum = 0;
    for (size_t o = 0; o < out_.size(); ++o) {
      if (!case_.op->outputs[o].differentiable) continue;
      const Array c = cotangent(o), y = reference::load(out_[o]);
      for (size_t i = 0; i < y.size(); ++i) sum += c[i] * y[i];
    }
    return sum;
  }

  const std::vector<Tensor>& in() const { return in_; }
  const std::vector<Tensor>& out() const { return out_; }
  const std::vector<GradSlot>& d_in() const { return d_in_; }
  bool is_within_bounds() const { return tensors_.are_within_bounds(); }

 private:
  /// Tensors of a device are the host's at all other times.
  void run(void (*function)(const OpCall&), const OpCall& call) {
    if (kernel().device != DeviceKind::cuda) return function(call);
    OnDevice moved(kernel().device, *case_.op, call, Tensors::kBeyond);
    function(moved.call());
    moved.copy_back();
  }

  OpCall base_call() {
    const AttrBox& attr = in_double_ ? case_.attr_double : case_.attr;
    return {attr.data(), in_, {}, {}, {}};
  }

  void add_input(size_t i, int64_t rows) {
    const CaseInput& input = case_.inputs[i];
    if (!input.present) {
      in_.emplace_back();
      return;
    }
    TensorMeta meta = in_double_ ? as_double(input.meta) : input.meta;
    if (rows >= 0 && input.row_indexed) {
      Shape cut{std::min(rows, meta.shape[0])};
      for (int d = 1; d < meta.shape.rank(); ++d) cut.push_back(meta.shape[d]);
      meta.shape = cut;
    }
    const Tensor t = tensors_.add(meta);
    if (meta.dtype == DType::i32) {
      if (t.numel() > 0) std::memcpy(t.data, input.ints.data(), static_cast<size_t>(t.bytes()));
    } else if (meta.dtype == DType::u8) {
      std::transform(input.ints.begin(), input.ints.begin() + t.numel(), t.as<uint8_t>(),
                     [](int32_t x) { return static_cast<uint8_t>(x); });
    } else {
      const Random random(case_.seed, RandomPurpose::test, i);
      Array values(static_cast<size_t>(t.numel()));
      const bool rounds = meta.rounded();  // the kernel does
      for (size_t k = 0; k < values.size(); ++k) {
        const auto x = static_cast<float>(input.values.empty() ? random.normal(k) * input.scale + input.offset
                                                               : input.values[k]);
        // both precisions see the same value
        values[k] = input.meta.dtype == DType::bf16 && !rounds ? to_float(to_bf16(x)) : x;
      }
      reference::store(rounds ? Tensor(t.data, t.shape(), DType::f32) : t, values);
    }
    in_.push_back(t);
  }

  void run_direction(const std::vector<Tensor>& d_out, bool weights) {
    const auto function = weights ? kernel().backward_weight : kernel().backward_input;
    std::vector<GradSlot> slots(d_in_.size());
    bool any = false;
    for (size_t i = 0; i < slots.size(); ++i) {
      if ((case_.op->inputs[i].kind == InputKind::weight) != weights || !d_in_[i].wanted()) continue;
      slots[i] = d_in_[i];
      any = true;
    }
    if (!any) return;
    // Show the kernel only what it declared: reading anything else is a crash here, not a surprise on the
    // tape.
    const OpCall all = full_call();
    const BackwardReads reads = case_.op->reads(all.attr_data);
    std::vector<Tensor> in(in_.size()), out(out_.size());
    for (size_t i = 0; i < in.size(); ++i)
      if ((weights ? reads.weight_in : reads.input_in) >> i & 1u) in[i] = in_[i];
    for (size_t i = 0; i < out.size(); ++i)
      if ((weights ? reads.weight_out : reads.input_out) >> i & 1u) out[i] = out_[i];
    OpCall call{all.attr_data, in, out, d_out, slots};
    const int64_t bytes = case_.op->scratch_bytes != nullptr ? case_.op->scratch_bytes(call) : 0;
    // Asked for again in each pass, as on the tape; it may hold anything.
    scratch_.assign(static_cast<size_t>(bytes) + 64, std::byte{0xff});
    call.scratch = full_call().scratch;
    run(function, call);
    clear_beyond_live_rows(*case_.op, call);
  }

  const OpCase& case_;
  bool in_double_;
  const Kernel* kernel_;
  Tensors tensors_;
  std::vector<Tensor> in_, out_;
  std::vector<GradSlot> d_in_;
  std::vector<std::byte> scratch_;
};

void expect_same_run(Run& a, Run& b, const std::string& what) {
  for (size_t o = 0; o < a.out().size(); ++o)
    expect_same_bits(a.out()[o], b.out()[o], a.out()[o].bytes(), what);
  for (size_t i = 0; i < a.d_in().size(); ++i)
    if (a.d_in()[i].wanted())
      expect_same_bits(a.d_in()[i].tensor, b.d_in()[i].tensor, a.d_in()[i].tensor.bytes(),
                       fmt::format("{} gradient {}", what, i));
}

void check_finite_differences(const OpCase& c) {
  Run run(c, true);
  run.forward();
  run.backward();
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!run.d_in()[i].wanted()) continue;
    const Array analytic = reference::load(run.d_in()[i].tensor);
    double scale = 1e-12;
    for (const double g : analytic) scale = std::max(scale, std::abs(g));
    const Random pick(c.seed, RandomPurpose::test, 77 + i);
    const auto n = static_cast<uint64_t>(analytic.size());
    const uint64_t tries = std::min<uint64_t>(n, 24);
    for (uint64_t k = 0; k < tries; ++k) {
      const uint64_t e = n <= 24 ? k : pick.below(k, n);
      auto* x = run.in()[i].as<double>() + e;
      const double before = *x, step = 1e-5 * std::max(1.0, std::abs(before));
      *x = before + step;
      run.forward();
      const double up = run.objective();
      *x = before - step;
      run.forward();
      const double down = run.objective();
      *x = before;
      EXPECT_NEAR((up - down) / (2 * step), analytic[e], 2e-6 * scale + 1e-7)
          << c.name << ": finite difference of input '" << c.op->inputs[i].name << "' element " << e;
    }
  }
}

void check_fast(const OpCase& c) {
  Run fast(c, false), exact(c, true);
  if (c.op->kernels.size() < 2 || fast.kernel().refuse(fast.full_call()) != nullptr) return;
  fast.forward();
  exact.forward();
  for (size_t o = 0; o < fast.out().size(); ++o)
    if (is_floating(fast.out()[o].dtype()))
      expect_close(fast.out()[o], exact.out()[o], c.value_tolerance,
                   c.name + " output " + c.op->outputs[o].name);
    else
      expect_same_bits(fast.out()[o], exact.out()[o], fast.out()[o].bytes(), c.name + " output");
  fast.backward();
  exact.backward();
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (fast.d_in()[i].wanted())
      expect_close(fast.d_in()[i].tensor, exact.d_in()[i].tensor, c.gradient_tolerance,
                   c.name + " gradient of " + c.op->inputs[i].name);
}

void check_accumulate(const OpCase& c, bool in_double) {
  Run set(c, in_double), add(c, in_double);
  if (!in_double && (c.op->kernels.size() < 2 || set.kernel().refuse(set.full_call()) != nullptr)) return;
  set.forward();
  add.forward();
  set.backward(99.0, false);  // must overwrite stale content
  add.backward(0.25, true);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!set.d_in()[i].wanted()) continue;
    Array expected = reference::load(set.d_in()[i].tensor);
    const Array found = reference::load(add.d_in()[i].tensor);
    double scale = 1;
    for (const double e : expected) scale = std::max(scale, std::abs(e));
    const DType t = set.d_in()[i].tensor.dtype();
    const double tolerance = t == DType::f64 ? 1e-12 : t == DType::bf16 ? 1e-2 : 2e-6;
    for (size_t k = 0; k < expected.size(); ++k)
      ASSERT_NEAR(found[k], expected[k] + 0.25, tolerance * scale)
          << c.name << ": accumulate, input '" << c.op->inputs[i].name << "' element " << k;
  }
}

void check_rest(const OpCase& c) {
  if (c.op->partial_recompute == nullptr) return;
  for (const Kernel& kernel : c.op->kernels)
    for (const bool in_double : {false, true}) {
      Run whole(c, in_double), again(c, in_double);
      const OpCall call = whole.full_call();
      const std::optional<PartialRecompute> rest = c.op->partial_recompute(call.attr_data);
      if (!rest || kernel.refuse(call) != nullptr) continue;
      kernel.forward(call);
      std::vector<Tensor> in(call.in.size()), out(again.out());
      for (size_t i = 0; i < in.size(); ++i)
        if (rest->others >> i & 1u) in[i] = call.in[i];
      in[rest->input] = call.out[rest->output];
      out[rest->output] = {};
      OpCall part{rest->attr.data(), in, out, {}, {}};
      part.scratch = again.full_call().scratch;
      ASSERT_EQ(kernel.refuse(part), nullptr) << c.name << ": " << kernel.name;
      kernel.forward(part);
      for (size_t o = 0; o < out.size(); ++o)
        if (o != rest->output)
          expect_same_bits(
              out[o], call.out[o], out[o].bytes(),
              fmt::format("{}: rest by {}, output {}", c.name, kernel.name, c.op->outputs[o].name));
    }
}

/// The first rows alone have the bits that they have among all, those of `all`.
void check_first_rows(const OpCase& c, Run& all, const Kernel* kernel) {
  int64_t rows = 0;
  for (const CaseInput& i : c.inputs)
    if (i.present && i.row_indexed) rows = i.meta.shape[0];
  for (const int64_t part : {int64_t{1}, rows / 2 + 1, rows - 1}) {
    if (part < 0 || part > rows) continue;
    Run some(c, false, part, kernel);
    some.forward();
    for (size_t o = 0; o < some.out().size(); ++o)
      if (c.output_row_indexed[o])
        expect_same_bits(
            all.out()[o], some.out()[o], some.out()[o].bytes(),
            fmt::format("{}: first {} rows alone, output {}", c.name, part, c.op->outputs[o].name));
  }
}

void check_invariance(const OpCase& c) {
  Run base(c, false);
  if (c.op->kernels.size() < 2 || base.kernel().refuse(base.full_call()) != nullptr) return;
  base.forward();
  base.backward();
  {
    const OtherThreads others;
    Run other(c, false);
    other.forward();
    other.backward();
    expect_same_run(base, other, c.name + ": other threads");
  }
  const Isa best = active_isa();
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa) || isa == best) continue;
    force_isa(isa);
    Run other(c, false);
    other.forward();
    other.backward();
    expect_same_run(base, other, fmt::format("{}: instruction set {}", c.name, isa_name(isa)));
  }
  force_isa(best);
  if (!c.output_row_indexed.empty()) check_first_rows(c, base, nullptr);
}

/// Of a case of the op table.
void record_case(const OpCase& c, const Kernel& kernel, bool passed) {
  record_kernel_case(gpu_kernel_name(c.op->name, kernel.exact), c.name, passed);
}

/// A kernel without the CPU's bits, emulated with three seeds, or as often on the GPU. Whether it takes the
/// case.
bool check_rounding(const OpCase& c, const Kernel& kernel) {
  if (Run(c, false, -1, &kernel).refusal() != nullptr) return false;
  int64_t k = 1;
  for (const CaseInput& i : c.inputs)
    for (int d = 0; d < i.meta.shape.rank(); ++d) k = std::max(k, i.meta.shape[d]);
  for (const bool accumulate : {false, true}) {
    Run exact(c, true), first(c, false, -1, &kernel);
    exact.forward(), exact.backward();
    for (const uint64_t seed : accumulate ? std::vector<uint64_t>{3} : std::vector<uint64_t>{1, 2}) {
      // Hopper's products are the same chains.
      set_emulation({.on = true, .seed = seed, .mma = true, .wgmma = seed != 1});
      Run other(c, false, -1, &kernel);
      Run& run = seed == 2 ? other : first;
      run.forward(), run.backward(0.25, accumulate);
      const std::string what = fmt::format("{}: kernel {} on {}, seed {}, accumulate {}", c.name, kernel.name,
                                           name_of(kernel.device), seed, accumulate);
      EXPECT_TRUE(run.is_within_bounds()) << what << ": a store beyond the end of a tensor";
      if (seed == 2) expect_same_run(first, other, what);
    }
    for (size_t o = 0; o < first.out().size(); ++o)
      expect_near(first.out()[o], exact.out()[o], {k, c.value_tolerance, !c.rounds_between},
                  c.name + " output " + c.op->outputs[o].name);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (!first.d_in()[i].wanted()) continue;
      const Tensor& expected = exact.d_in()[i].tensor;
      if (accumulate) {
        Array sums = reference::load(expected);
        for (double& x : sums) x += 0.25;
        reference::store(expected, sums);
      }
      expect_near(first.d_in()[i].tensor, expected,
                  {k, c.gradient_tolerance, !c.rounds_between, c.rounds_between ? 2 : 1},
                  c.name + " gradient of " + c.op->inputs[i].name);
    }
    if (!accumulate && !c.output_row_indexed.empty()) check_first_rows(c, first, &kernel);
  }
  return true;
}

/// Emulated with three seeds, or on the GPU.
void check_gpu_kernels(const OpCase& c, DeviceKind device) {
  EXPECT_TRUE(std::any_of(c.op->kernels.begin(), c.op->kernels.end(),
                          [&](const Kernel& k) { return k.device == device; }))
      << c.op->name << " has no kernel for GPUs";
  const bool is_emulated = device == DeviceKind::sim;
  set_kernels("unproven");
  for (const Kernel& kernel : c.op->kernels) {
    if (kernel.device != device) continue;
    const int failed_before = failures_so_far();
    bool any = false;
    if (!kernel.exact) {
      if (is_emulated) set_emulation({.on = true, .mma = true});
      any = check_rounding(c, kernel);
      set_emulation({});
      if (any) record_case(c, kernel, failures_so_far() == failed_before);
      continue;
    }
    for (const uint64_t seed : is_emulated ? std::vector<uint64_t>{1, 2, 3} : std::vector<uint64_t>{0}) {
      if (is_emulated) set_emulation({true, seed});
      for (const bool accumulate : {false, true}) {
        Run cpu(c, false), there(c, false, -1, &kernel);
        if (there.refusal() != nullptr) continue;
        any = true;
        cpu.forward(), cpu.backward(0.25, accumulate);
        there.forward(), there.backward(0.25, accumulate);
        const std::string what = fmt::format("{}: kernel {} {}, seed {}, accumulate {}", c.name, kernel.name,
                                             is_emulated ? "emulated" : "on the GPU", seed, accumulate);
        expect_same_run(cpu, there, what);
        EXPECT_TRUE(there.is_within_bounds()) << what << ": a store beyond the end of a tensor";
      }
    }
    set_emulation({});
    if (any) record_case(c, kernel, failures_so_far() == failed_before);
  }
  set_kernels("strict");
}

}  // namespace

std::string_view checked_kernels() {
  const char* const what = std::getenv("INGOT_OP_CHECK");
  return what != nullptr ? what : "";
}

void record_kernel_case(const std::string& kernel, const std::string& name, bool passed) {
  const char* const path = std::getenv("INGOT_OP_RECORD");
  if (path == nullptr) return;
  const nlohmann::json line{{"kernel", kernel}, {"case", name}, {"passed", passed}};
  std::ofstream(path, std::ios::app) << line.dump() << "\n";
}

int failures_so_far() {
  const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int failed = 0;
  for (int i = 0; i < result.total_part_count(); ++i) failed += result.GetTestPartResult(i).failed();
  return failed;
}

void check_op(const OpCase& c) {
  SCOPED_TRACE(fmt::format("reproduce: case '{}', seed {}", c.name, c.seed));
  if (checked_kernels() == "emulated") return check_gpu_kernels(c, DeviceKind::sim);
  if (checked_kernels() == "cuda") return check_gpu_kernels(c, DeviceKind::cuda);
  if (c.finite_differences) check_finite_differences(c);
  check_fast(c);
  check_accumulate(c, true);
  check_accumulate(c, false);
  check_rest(c);
  check_invariance(c);
}

}  // namespace ingot::test
