// linear_activation: what a tape makes of the pair is, name by name and bit for bit, what it makes of the two
// ops; and where a device has a kernel for both, that takes one launch less. With INGOT_OP_CHECK
// (support/op_check.h) on emulated kernels or those of a GPU, which so prove themselves.
#include "ops/linear/linear_activation.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "device/gpu/emulator.h"
#include "ops/gpu_proof.h"
#include "ops/gpu_registry.h"
#include "ops/linear/linear.h"
#include "support/op_check.h"
#include "tape/backward.h"
#include "tensor/host_copy.h"

namespace ingot::test::linear_activation_test {

/// What a tape wrote, by name.
class Written final : public TapeObserver {
 public:
  void tensor(const std::string& name, const Tensor& t) override {
    all[name].assign(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  }
  std::map<std::string, std::string> all;
};

struct Case {
  int64_t rows, inputs, outputs;
  ActivationKind kind;
  Stored stored;
  bool bias;
  /// What the kernel for both takes, on tensor cores.
  bool is_for_both() const { return stored.type == DType::bf16 && !is_gated(kind); }
};

std::vector<std::byte> random_values(const TensorMeta& meta, uint64_t stream) {
  const Random random(4, RandomPurpose::test, stream);
  std::vector<std::byte> bytes(static_cast<size_t>(meta.bytes()) + 1);
  for (int64_t i = 0; i < meta.shape.numel(); ++i) {
    const auto x = static_cast<float>(random.normal(static_cast<uint64_t>(i)));
    if (meta.element_bytes() == 4)
      reinterpret_cast<float*>(bytes.data())[i] = x;
    else
      reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(x);
  }
  return bytes;
}

struct Run {
  std::map<std::string, std::string> written;
  int64_t nodes = 0, launches = 0;  ///< launches of forward
};
Run run(const Case& c, DeviceKind kind, bool as_pair) {
  const DType type = c.stored.type;
  const TensorMeta metas[] = {{Shape{c.rows, c.inputs}, type},
                              {Shape{c.outputs, c.inputs}, type, c.stored.format},
                              {Shape{c.outputs}, DType::f32}};
  std::vector<std::byte> values[3];
  for (size_t i = 0; i < 3; ++i) values[i] = random_values(metas[i], i);
  HeapArena arena(device_of(kind));
  Written written;
  Tape tape(arena, {.device = kind, .copies_leaves = true, .observer = &written});
  const auto leaf = [&](size_t i) { return tape.leaf(Tensor(values[i].data(), metas[i]), i == 0); };
  const Value x = leaf(0), weight = leaf(1), bias = c.bias ? leaf(2) : Value();
  const ActivationAttr attr{c.kind, type};
  const int64_t before = device_of(kind).counters().launches;
  const Value y = as_pair ? linear_activation(tape, attr, x, weight, bias)
                          : activation(tape, attr, linear(tape, type, x, weight, bias));
  Run r;
  r.launches = device_of(kind).counters().launches - before;
  const std::vector<std::byte> d_y = random_values(y.meta(), 3);
  tape.seed(y, Tensor(const_cast<std::byte*>(d_y.data()), y.meta()));
  Backward(tape).run();
  r.nodes = static_cast<int64_t>(tape.nodes().size());
  r.written = written.all;
  return r;
}

/// On the device, where `any` of its kernels run. Whether a kernel ran both ops.
bool check(const Case& c, DeviceKind kind, const std::string& what) {
  const Run pair = run(c, kind, true), ops = run(c, kind, false);
  EXPECT_EQ(pair.nodes, 2) << what;
  EXPECT_EQ(ops.written.size(), 4u) << what << ": y of both, d_x of both";
  EXPECT_TRUE(pair.written == ops.written) << what << ": bits differ";
  return pair.launches < ops.launches;
}

TEST(LinearActivation, Cases) {
  const std::string_view checked = checked_kernels();
  const bool emulates = checked == "emulated", on_gpu = checked == "cuda";
  const DeviceKind kind = emulates ? DeviceKind::sim : on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
  if (on_gpu) set_kernels("unproven");
  for (const auto& [rows, inputs, outputs] : {std::tuple<int64_t, int64_t, int64_t>{5, 7, 4},
                                              {0, 16, 64},
                                              {1, 1, 2},
                                              {16, 72, 200},
                                              {130, 40, 136}})
    for (const ActivationKind f : {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu2,
                                   ActivationKind::silu, ActivationKind::swiglu})
      for (const Stored& stored : kStored)
        for (const bool bias : {false, true}) {
          const Case c{rows, inputs, outputs, f, stored, bias};
          const std::string what = fmt::format("linear_activation {} {}x{}->{} {} bias={}", name_of(f), rows,
                                               inputs, outputs, stored.name(), bias);
          const int failed_before = failures_so_far();
          const bool has_kernel = (emulates || (on_gpu && rows > 0)) && c.is_for_both();
          for (const uint64_t seed : {1, 2, 3}) {
            if (!emulates && seed > 1) continue;
            if (emulates) set_emulation({.on = true, .seed = seed, .mma = true, .wgmma = seed != 1});
            EXPECT_EQ(check(c, kind, fmt::format("{}, seed {}", what, seed)), has_kernel) << what;
          }
          if (has_kernel)
            record_kernel_case(gpu_kernel_name("linear_activation", false), what,
                               failures_so_far() == failed_before);
        }
  set_emulation({});
  set_kernels("strict");
}

}  // namespace ingot::test::linear_activation_test
