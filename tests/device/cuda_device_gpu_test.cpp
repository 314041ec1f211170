// The device cuda, on a GPU or on a driver that is faked (INGOT_CUDA_LIBRARY): memory, streams, kernels,
// graphs, and models, whose gradients and checkpoints have the CPU's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/gemm/library_choice.h"
#include "device/gpu/emulator.h"
#include "device/host_block.h"
#include "device/simd/gpu_array.h"
#include "ops/gpu_proof.h"
#include "support/device_steps.h"
#include "support/fake_cuda.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"
#include "support/tiny_run.h"
#include "train/resume_check.h"
#include "train/trainer.h"

namespace ingot::test::cuda_device_gpu_test {

constexpr int64_t kCount = 5000, kBytes = kCount * static_cast<int64_t>(sizeof(float));

/// Kernels that have not proven themselves, and those of the host, while this lives.
class Unproven {
 public:
  Unproven() { set_kernels("unproven"); }
  ~Unproven() { set_kernels("strict"); }
  Unproven(const Unproven&) = delete;
  Unproven& operator=(const Unproven&) = delete;
};

/// Floats of the device.
class Floats {
 public:
  Floats() : data_(static_cast<float*>(device().allocate(kBytes))) {}
  ~Floats() { device().release(data_, kBytes); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  static CudaDevice& device() { return cuda_device(); }
  float* data() const { return data_; }
  void set(const std::vector<float>& values, StreamRole stream = StreamRole::compute) const {
    device().upload(data_, values.data(), kBytes, stream);
  }
  std::vector<float> get() const {
    std::vector<float> values(kCount);
    device().download(values.data(), data_, kBytes);
    return values;
  }

 private:
  float* const data_;
};

std::vector<float> counted(float from) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), from);
  return values;
}

TEST(CudaDevice, CopiesInOrderAndWaitsForOtherStreams) {
  CudaDevice& device = cuda_device();
  const Floats a;
  for (int i = 0; i < 50; ++i) {
    std::vector<float> values = counted(static_cast<float>(i));
    a.set(values, StreamRole::copy_in);
    values.assign(values.size(), -1);  // the device has taken them
    device.wait(StreamRole::compute, device.record(StreamRole::copy_in));
    EXPECT_EQ(a.get(), counted(static_cast<float>(i)));
  }
  const int64_t waits = device.counters().synchronizations;
  std::vector<float> here(kCount);
  device.begin_download(here.data(), a.data(), kBytes, StreamRole::copy_out);
  EXPECT_EQ(device.counters().synchronizations, waits);
  device.synchronize(device.record(StreamRole::copy_out));
  EXPECT_EQ(here, counted(49));
  EXPECT_EQ(device.counters().synchronizations, waits + 1);
  EXPECT_EQ(device.allocate(0), nullptr);
  device.release(nullptr, 0);
}

/// Uploads in the compute stream are staged: the host changes what it uploaded, and waits for nothing.
TEST(CudaDevice, TakesUploadsWithoutWaiting) {
  CudaDevice& device = cuda_device();
  const Floats a;
  const HostBlock all(device, 50 * kBytes);
  auto* const first = static_cast<float*>(all.data());
  const int64_t waits = device.counters().synchronizations, pageable = device.counters().pageable_copies;
  for (int i = 0; i < 50; ++i) {
    std::vector<float> values = counted(static_cast<float>(i));
    a.set(values);
    values.assign(values.size(), -1);
    device.begin_download(first + i * kCount, a.data(), kBytes, StreamRole::compute);
  }
  EXPECT_EQ(device.counters().synchronizations, waits);
  EXPECT_EQ(device.counters().pageable_copies, pageable);
  device.synchronize(device.record(StreamRole::compute));
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(std::vector<float>(first + i * kCount, first + (i + 1) * kCount),
              counted(static_cast<float>(i)));
}

/// to += from, on the device.
void add(const Floats& to, const Floats& from) {
  const LaunchOn on(&cuda_device());
  INGOT_GPU_CALL(launch_array_copy)
  ({}, {to.data(), DType::f32, from.data(), DType::f32, kCount, true});
}

TEST(CudaDevice, RunsKernelsInOrderAndReplaysGraphsOfThem) {
  CudaDevice& device = cuda_device();
  const Floats a, b;
  a.set(counted(0)), b.set(counted(0));
  const int64_t launches = device.counters().launches, graphs = device.counters().graph_launches;
  for (int i = 0; i < 3; ++i) add(a, b);
  device.begin_capture();
  add(a, b);
  add(b, a);
  const DeviceGraph graph = device.end_capture();
  std::vector<float> x = counted(0), y = counted(0);
  for (float& v : x) v *= 4;
  EXPECT_EQ(a.get(), x) << "what is captured does not run";
  EXPECT_EQ(device.counters().launches, launches + 3);
  for (int i = 0; i < 4; ++i) device.replay(graph);
  for (size_t i = 0; i < x.size(); ++i)
    for (int n = 0; n < 4; ++n) x[i] += y[i], y[i] += x[i];
  EXPECT_EQ(a.get(), x);
  EXPECT_EQ(b.get(), y);
  EXPECT_EQ(device.counters().launches, launches + 3 + 4 * 2);
  EXPECT_EQ(device.counters().graph_launches, graphs + 4);
}

TEST(CudaDevice, RefusesWhatWouldBeBakedIntoAGraph) {
  CudaDevice& device = cuda_device();
  const Floats a, b;
  const std::vector<float> values(kCount);
  std::vector<float> here(kCount);
  for (const std::function<void()>& act :
       {std::function<void()>([&] { a.set(values); }),
        std::function<void()>([&] { device.download(here.data(), a.data(), 8); }),
        std::function<void()>([&] { device.record(StreamRole::compute); }),
        std::function<void()>([&] { device.allocate(64); })}) {
    device.begin_capture();
    add(a, b);
    EXPECT_THROW(act(), InternalError);
    EXPECT_THROW(device.end_capture(), InternalError) << "the capture is over";
  }
  a.set(counted(1)), b.set(counted(1));
  EXPECT_EQ(a.get(), counted(1)) << "and the device works on";
}

class CudaModels : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaModels, HaveTheGradientsOfTheCpu) {
  const auto model = small_model(GetParam(), Precision::f32());
  const Pass cpu = pass(*model, {});
  const Unproven unproven;
  HeapArena arena(cuda_device());
  const int64_t launches = cuda_device().counters().launches;
  EXPECT_EQ(pass(*model, {.device = DeviceKind::cuda}, HeadMode::store, &arena).gradients, cpu.gradients);
  EXPECT_GT(cuda_device().counters().launches, launches + 50);
}

INSTANTIATE_TEST_SUITE_P(All, CudaModels, ::testing::ValuesIn(small_model_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// What the device did so far.
struct Counts {
  int64_t waits, allocations, copies, unplanned_copies, pageable_copies, graphs;
};
Counts counts() {
  const DeviceCounters& c = cuda_device().counters();
  return {c.synchronizations, c.allocations,     c.uploads + c.downloads,
          c.unplanned_copies, c.pageable_copies, c.graph_launches};
}

class CudaSteps : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, CudaSteps,
                         ::testing::Values("llama clip", "mla clip", "moe loads", "zaya", "zaya rounded"),
                         test_name_of);

/// Weights, gradients and state stay on the GPU, where they are updated. From the third step on passes and
/// update are graphs, and the host waits once.
TEST_P(CudaSteps, HaveTheBitsOfTheCpu) {
  const Recipe r = recipe_of(GetParam());
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = steps(cpu, 4);
  const Unproven unproven;
  const ComputeOn on(DeviceKind::cuda);
  TrainEngine gpu(r);
  gpu.model().weights().initialize(3);
  std::vector<double> measured;
  measure(gpu, batch_of(r, 0), 0.01, measured);
  const int64_t before = cuda_device().counters().uploaded_bytes;
  measure(gpu, batch_of(r, 1), 0.01 / 2, measured);
  EXPECT_LT(cuda_device().counters().uploaded_bytes - before, gpu.owned_elements() * 4)
      << "less than the weights";
  measure(gpu, batch_of(r, 2), 0.01 / 3, measured);
  EXPECT_EQ(gpu.graph_counts().captured, 2);
  EXPECT_EQ(gpu.graph_counts().replayed, 2);
  const Counts third = counts();
  const bool is_faked = cuda_device().driver().is_faked();
  const FakeCuda fake = is_faked ? fake_cuda() : FakeCuda();
  measure(gpu, batch_of(r, 3), 0.01 / 4, measured);
  const Counts fourth = counts();
  EXPECT_EQ(fourth.waits - third.waits, 1);
  EXPECT_EQ(fourth.allocations, third.allocations);
  EXPECT_EQ(fourth.unplanned_copies, third.unplanned_copies);
  EXPECT_EQ(fourth.pageable_copies, third.pageable_copies);
  if (is_faked) {
    EXPECT_EQ(fake_cuda().pageable_copies, fake.pageable_copies) << "says the driver";
    EXPECT_EQ(fake_cuda().pins, fake.pins) << "memory is pinned in the first steps alone";
  }
  EXPECT_EQ(fourth.graphs - third.graphs, 3) << "each micro-batch, and the update";
  EXPECT_EQ(fourth.copies - third.copies, 3 + 3);
  EXPECT_EQ(measured, expected);
  EXPECT_EQ(state_of(gpu), state_of(cpu));
}

/// The host learns of it after the update, eager or replayed, which has changed nothing.
TEST(CudaSteps, ChangeNothingWhereAValueIsNotFinite) {
  const Unproven unproven;
  const ComputeOn on(DeviceKind::cuda);
  TrainEngine gpu(recipe_of("llama clip"));
  WeightSet& weights = gpu.model().weights();
  weights.initialize(3);
  const auto judge = [](const StepStats& stats, const GradNorm& norm) {
    if (!norm.finite() || !std::isfinite(stats.loss())) fail("a value is not finite");
  };
  for (int step_number = 0; step_number < 3; ++step_number) {
    const data::Batch batch = batch_of(gpu.recipe(), static_cast<uint64_t>(step_number));
    float& value = weights.master(weights.size() - 1).as<float>()[0];
    const float before_it = std::exchange(value, std::numeric_limits<float>::quiet_NaN());
    const auto before = state_of(gpu);
    EXPECT_THROW(gpu.step(batch, {.options = gpu.options(0, 2), .lr = 0.01, .judge = judge}), Error);
    EXPECT_EQ(state_of(gpu), before) << step_number;
    weights.master(weights.size() - 1).as<float>()[0] = before_it;
    gpu.step(batch, {.options = gpu.options(0, 2), .lr = 0.01, .judge = judge});
    EXPECT_NE(state_of(gpu), before) << step_number;
  }
}

/// What three steps measured and left, on a device.
struct Trained {
  std::vector<double> measured;
  std::map<std::string, std::string> state;
  int64_t unplanned_copies;           ///< of the last step
  int64_t array_copies, activations;  ///< launches of these kernels in all three steps
};
Trained train_on(DeviceKind device, const Recipe& r) {
  const ComputeOn on(device);
  auto first = emulated_launches();
  TrainEngine engine(r);
  engine.model().weights().initialize(3);
  std::vector<double> measured = steps(engine, 2);
  const auto& copies = device_of(device).counters().unplanned_copies;
  const int64_t before = copies;
  measure(engine, batch_of(r, 2), 0.01 / 3, measured);
  const int64_t unplanned = copies - before;
  const auto launched = [&](const char* kernel) { return emulated_launches()[kernel] - first[kernel]; };
  const int64_t array_copies = launched("array_copy"), activations = launched("activation_forward");
  measured.push_back(engine.evaluate(batch_of(r, 3)).first);  // by the weights of the last update
  return {measured, state_of(engine), unplanned, array_copies, activations};
}

/// In bf16 products and attention run on tensor cores, those of the GPU, or the emulator's on the simulated
/// device; no op runs on the host, whose kernels have other bits.
TEST(CudaSteps, InBf16HaveTheBitsOfTheTensorCoresThatAreEmulated) {
  if (!cuda_device().driver().is_faked())
    GTEST_SKIP() << "instructions of a GPU add in an order of their own";
  Recipe r = recipe_of("zaya");
  const int64_t copies_of_f32 = [&] {
    const Unproven unproven;
    return train_on(DeviceKind::cuda, r).unplanned_copies;
  }();
  r.run.precision = PrecisionChoice::bf16;
  set_emulation({.on = true, .seed = 3, .mma = true});
  const Trained emulated = train_on(DeviceKind::sim, r);
  set_emulation({});
  const Unproven unproven;
  const Trained gpu = train_on(DeviceKind::cuda, r);
  EXPECT_EQ(gpu.unplanned_copies, copies_of_f32);
  EXPECT_EQ(gpu.measured, emulated.measured);
  EXPECT_EQ(gpu.state, emulated.state);
  EXPECT_NE(gpu.measured, train_on(DeviceKind::cpu, r).measured);
}

/// The faked library multiplies as the emulator's instructions do. Capped logits are ours with it too.
TEST(CudaSteps, ByCublasLtHaveTheBitsOfThoseByOurProducts) {
  if (!cuda_device().driver().is_faked()) GTEST_SKIP() << "the library's products have bits of their own";
  Recipe r = recipe_of("llama clip");
  r.model.width = 64, r.model.hidden = 72, r.model.vocab = 72;
  r.model.head_cap = {.kind = HeadCapKind::tanh, .cap = 5};
  r.run.precision = PrecisionChoice::bf16;
  const Unproven unproven;
  const Trained ours = train_on(DeviceKind::cuda, r);
  EXPECT_EQ(ours.array_copies, 3 * (1 + 2 * (1 + 2)))
      << "weights are rounded once a step; in each of two micro-batches one gradient is copied, and the "
         "cotangents of logits are rounded for two products";
  ::setenv("INGOT_CUBLASLT_LIBRARY", kFakeCublasLt, 1);
  set_products("cublaslt");
  const int before = fake_cublaslt().products;
  const Trained library = train_on(DeviceKind::cuda, r);
  EXPECT_GT(fake_cublaslt().products - before, 100);
  EXPECT_EQ(library.measured, ours.measured);
  EXPECT_EQ(library.state, ours.state);
  const ComputeOn on(DeviceKind::cuda);
  EXPECT_NE(kernel_set_of(r).find(", products by cuBLASLt 13.1.0"), std::string::npos) << kernel_set_of(r);
  set_kernels("strict");
  EXPECT_NE(std::string(refuse_unproven("linear_mma")).find("its products are cuBLASLt's"),
            std::string::npos);
  set_products("own");
  ::unsetenv("INGOT_CUBLASLT_LIBRARY");
}

/// With the library's products, whose bits are ours on a faked driver, an MLP's product and its activation
/// are two launches.
TEST(CudaSteps, ActivateInTheProductOfAnMlp) {
  if (!cuda_device().driver().is_faked()) GTEST_SKIP() << "the library's products have bits of their own";
  Recipe r = recipe_of("gpt2");
  r.model.width = 64, r.model.hidden = 72;
  r.run.precision = PrecisionChoice::bf16;
  const Unproven unproven;
  const Trained one = train_on(DeviceKind::cuda, r);
  ::setenv("INGOT_CUBLASLT_LIBRARY", kFakeCublasLt, 1);
  set_products("cublaslt");
  const Trained two = train_on(DeviceKind::cuda, r);
  set_products("own");
  ::unsetenv("INGOT_CUBLASLT_LIBRARY");
  EXPECT_EQ(one.activations, 0);
  EXPECT_EQ(two.activations, 3 * 2 * r.model.layers) << "in three steps of two micro-batches";
  EXPECT_EQ(one.measured, two.measured);
  EXPECT_EQ(one.state, two.state);
}

TEST(CudaRuns, OfBf16ResumeOnTheirArchitecture) {
  Recipe r;
  const std::string of_f32 = kernel_set_of(r);
  r.run.precision = PrecisionChoice::bf16;
  const ComputeOn on(DeviceKind::cuda);
  EXPECT_TRUE(kernel_set_of(r).ends_with(" on " + cuda_device().driver().architecture())) << kernel_set_of(r);
  r.run.precision = PrecisionChoice::f32;
  EXPECT_EQ(kernel_set_of(r), of_f32) << "runs of f32 move between devices";
}

/// No kernel of a GPU has moments in bf16.
TEST(CudaSteps, UpdateOnTheHostWhatNoKernelTakes) {
  Recipe r = recipe_of("llama clip");
  r.optimizer.first_moment = ValueStorage::bf16_stochastic;
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = steps(cpu, 2);
  const Unproven unproven;
  const ComputeOn on(DeviceKind::cuda);
  TrainEngine gpu(r);
  gpu.model().weights().initialize(3);
  EXPECT_EQ(steps(gpu, 2), expected);
  EXPECT_EQ(state_of(gpu), state_of(cpu));
}

TEST(CudaRuns, EndWithTheCheckpointOfTheCpu) {
  const TempDir folder;
  const Quiet quiet;
  const Unproven unproven;
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "run.toml", base_recipe(folder.path(), 32, "kind = \"characters\""));
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    const ComputeOn on(kind);
    const Recipe recipe = load_recipe(
        folder / "run.toml", {"--run.folder=" + folder.path() + "/" + name_of(kind), "--run.precision=f32",
                              "--phases.0.steps=6", "--checkpoint.every=3"});
    Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
    EXPECT_TRUE(trainer.run().finished);
  }
  EXPECT_EQ(difference(folder / "cpu", folder / "cuda"), "");
}

/// Before the first step, with the parts; the plan that fits is what the steps then take.
TEST(CudaRuns, SayWhatTheyNeedOfTheGpusMemory) {
  if (!cuda_device().driver().is_faked()) GTEST_SKIP() << "the memory of a GPU is what it is";
  const TempDir folder;
  const Quiet quiet;
  const Unproven unproven;
  const ComputeOn on(DeviceKind::cuda);
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "run.toml", base_recipe(folder.path(), 32, "kind = \"characters\""));
  const Recipe recipe =
      load_recipe(folder / "run.toml", {"--run.folder=" + (folder / "run"), "--run.precision=bf16",
                                        "--phases.0.steps=2", "--model.width=128", "--model.hidden=512"});
  fake_cuda().most_used = fake_cuda().used;
  const size_t used = fake_cuda().used, memory = fake_cuda().memory;
  size_t needed = 0;
  {
    Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
    const MemoryOnGpu& gpu = *trainer.plan().gpu;
    EXPECT_NE(trainer.plan().text.find("  on the GPU "), std::string::npos) << trainer.plan().text;
    for (const int64_t part : {gpu.weights, gpu.gradients, gpu.optimizer, gpu.rounded, gpu.scratch})
      EXPECT_GT(part, 0);
    needed = static_cast<size_t>(gpu.needed());
    EXPECT_TRUE(trainer.run().finished);
    // Beside it there are the places of a micro-batch, the block of a step, and lists.
    const auto taken = fake_cuda().most_used - used;
    EXPECT_GE(taken, needed);
    EXPECT_LE(taken, needed + needed / 20 + (64 << 10)) << trainer.plan().text;
  }
  std::filesystem::remove_all(folder / "run");
  fake_cuda().memory = fake_cuda().used + needed - 1;
  try {
    const Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
    ADD_FAILURE() << "it began";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("of the GPU's memory, of which"), std::string::npos) << message;
    EXPECT_NE(message.find("weights in bf16"), std::string::npos) << message;
  }
  fake_cuda().memory = memory;
}

}  // namespace ingot::test::cuda_device_gpu_test
