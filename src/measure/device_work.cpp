// See device_work.h.
#include "measure/device_work.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "device/cuda/cuda_device.h"
#include "device/gpu/launch_through.h"
#include "device/host_kernel.h"
#include "measure/op_sizes.h"
#include "ops/linear/linear.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/update_kernels.h"
#include "tape/device_call.h"

namespace ingot {
namespace {

constexpr int64_t kPattern = 262147;  // a prime, so that rows of a matrix differ

template <class T, class Round>
void fill(Device& device, void* to, int64_t count, uint64_t seed, Round round) {
  const Random random(seed, RandomPurpose::test);
  std::vector<T> pattern(static_cast<size_t>(std::min(count, kPattern)));
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = round(2 * random.uniform(i) - 1);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  auto* const first = static_cast<char*>(to);
  auto done = static_cast<int64_t>(pattern.size());
  device.upload(first, pattern.data(), done * kBytes);
  while (done < count) {
    const int64_t more = std::min(done, count - done);
    device.copy(first + done * kBytes, first, more * kBytes);
    done += more;
  }
}

Direction direction_of(OpPass pass) {
  return pass == OpPass::input_gradient    ? Direction::backward_input
         : pass == OpPass::weight_gradient ? Direction::backward_weight
                                           : Direction::forward;
}

}  // namespace

void fill_random(Device& device, void* to, DType type, int64_t count, uint64_t seed) {
  if (type == DType::bf16)
    fill<bf16>(device, to, count, seed, [](float x) { return to_bf16(x); });
  else
    fill<float>(device, to, count, seed, [](float x) { return x; });
}

OpWork::OpWork(Device& device, const Op& op, const AttrBox& attr,
               const std::vector<std::optional<WorkInput>>& inputs, OpPass pass)
    : device_(device), node_{&op, attr, {}, {}, -1} {
  const Direction direction = direction_of(pass);
  make_tensors(inputs, direction);
  prepare(Direction::forward);
  if (runs() && direction != Direction::forward) prepare(direction);
}

Tensor OpWork::make(const TensorMeta& meta) {
  memory_.push_back(std::make_unique<DeviceMemory>(device_, meta.bytes()));
  void* const data = memory_.back()->data();
  const DType type = meta.rounded() ? DType::f32 : meta.dtype;
  if (type != DType::i32) fill_random(device_, data, type, meta.shape.numel(), memory_.size());
  return {data, meta, device_.kind()};
}

void OpWork::make_tensors(const std::vector<std::optional<WorkInput>>& inputs, Direction direction) {
  const bool forward = direction == Direction::forward;
  const Op& op = *node_.op;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (i >= inputs.size() || !inputs[i]) {
      in_.emplace_back(), d_in_.emplace_back();
      continue;
    }
    const WorkInput& input = *inputs[i];
    in_.push_back(make(input.meta));
    if (!input.words.empty()) device_.upload(in_[i].data, input.words.data(), in_[i].bytes());
    const InputKind kind = op.inputs[i].kind;
    const DType type = kind == InputKind::activation ? input.meta.dtype : DType::f32;
    const bool wanted = !forward && writes_gradient(direction, kind);
    d_in_.push_back({wanted ? make({input.meta.shape, type}) : Tensor(), false});
  }
  shapes_ = shapes_of(in_);
  std::vector<TensorMeta> out(op.outputs.size());
  op.infer({node_.attr.data(), in_}, out);
  for (size_t i = 0; i < out.size(); ++i) {
    out_.push_back(make(out[i]));
    d_out_.push_back(!forward && op.outputs[i].differentiable ? make(out[i]) : Tensor());
  }
}

void OpWork::prepare(Direction direction) {
  const Op& op = *node_.op;
  const bool forward = direction == Direction::forward;
  direction_ = direction;
  read_in_ = in_, read_out_ = out_, written_.clear();
  if (!forward) {
    const PassReads reads = reads_of(node_, direction);
    for (size_t i = 0; i < in_.size(); ++i)
      if ((reads.in >> i & 1u) == 0) read_in_[i] = {};
    for (size_t i = 0; i < out_.size(); ++i)
      if ((reads.out >> i & 1u) == 0) read_out_[i] = {};
    written_ = d_in_;
  }
  call_ = {node_.attr.data(), read_in_, read_out_, {}, written_};
  if (!forward) call_.d_out = d_out_;
  scratch_bytes_ = op.scratch_bytes != nullptr ? op.scratch_bytes(call_) : 0;
  if (scratch_bytes_ > 0) {
    memory_.push_back(std::make_unique<DeviceMemory>(device_, scratch_bytes_));
    call_.scratch = memory_.back()->data();
  }
  const OpCost cost = op.cost({node_.attr.data(), in_, out_, {}, written_});
  const bool weights = direction == Direction::backward_weight;
  flops_ = forward ? cost.forward_flops : weights ? cost.backward_weight_flops : cost.backward_input_flops;
  bytes_ = forward ? cost.bytes : weights && cost.weight_bytes > 0 ? cost.weight_bytes : touched_bytes(call_);
  kernel_ = select_device_kernel(op, call_, device_.kind());
  if (kernel_ != nullptr) execute();
}

void OpWork::execute() const {
  if (kernel_->device == DeviceKind::cpu)
    return launch_call(device_, *kernel_, node_, call_, direction_, scratch_bytes_);
  (direction_ == Direction::forward           ? kernel_->forward
   : direction_ == Direction::backward_weight ? kernel_->backward_weight
                                              : kernel_->backward_input)(call_);
}

const Tensor& OpWork::result() const {
  for (const GradSlot& g : written_)
    if (g.wanted()) return g.tensor;
  return out_[0];
}

std::unique_ptr<OpWork> product_work(Device& device, const ProductSizes& s, DType type, OpPass pass) {
  const auto input = [type](Shape shape) { return WorkInput{{shape, type}}; };
  return std::make_unique<OpWork>(
      device, linear_op(), AttrBox(LinearAttr{type}),
      std::vector<std::optional<WorkInput>>{input({s.rows, s.k}), input({s.n, s.k}), std::nullopt}, pass);
}

bool is_gpu(const Device& device) {
  return device.kind() == DeviceKind::cuda && !cuda_device().driver().is_faked();
}

double seconds_on(Device& device, const std::function<void()>& work, int calls) {
  const double begin = monotonic_seconds();
  for (int i = 0; i < calls; ++i) work();
  device.synchronize(device.record(StreamRole::compute));
  return (monotonic_seconds() - begin) / calls;
}

DevicePeak::DevicePeak(Device& device) : device_(device) {
  const int64_t size = is_gpu(device) ? 8192 : 64;
  product_ = product_work(device, {size, size, size}, DType::bf16, OpPass::forward);
  if (!product_->runs())
    throw Error(fmt::format("device '{}' has no kernel for products of bf16", name_of(device.kind())),
                "--kernels=unproven takes those that have not proven themselves");
}

double DevicePeak::operator()() const {
  constexpr int kCalls = 10;
  seconds_on(device_, std::ref(*product_), 1);
  return 1e-9 * product_->flops() / seconds_on(device_, std::ref(*product_), kCalls);
}

namespace {

/// Where the values of a tensor are: weights, gradient, first and second moment.
using Values = std::array<void*, 4>;

/// The words of a step beside them.
struct UpdateWords {
  StepScalars scalars{.lr = 1e-4, .grad_scale = 1e-3, .step = 0, .balances = 0, .clip_factor = 0};
  AdamWNumbers numbers = adamw_numbers({}, {}, 1);
  UpdateDecision decision{};
  double loss = 1;
  // Then rates, sums of squares and stats of all tensors.
};

/// `words`: UpdateWords and what follows them.
void make_step(const std::vector<Values>& values, const std::vector<Shape>& shapes, void* words,
               const UpdateKernels* kernels, KeptLists* lists) {
  constexpr double kMostNorm = 1, kDecay = 0.1;
  auto* const w = static_cast<UpdateWords*>(words);
  auto* const rates = reinterpret_cast<double*>(w + 1);
  double* const squares = rates + shapes.size();
  std::vector<ParamView> params(values.size());
  std::vector<AdamWTensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    ParamView& p = params[i];
    p.name = std::to_string(i), p.shape = shapes[i];
    p.master = static_cast<float*>(values[i][0]), p.grad = static_cast<float*>(values[i][1]);
    tensors.push_back({&p,
                       static_cast<float*>(values[i][2]),
                       static_cast<float*>(values[i][3]),
                       UpdateWords().scalars.lr,
                       kDecay,
                       {},
                       static_cast<int64_t>(i)});
  }
  if (kernels == nullptr) {
    const double scale = w->scalars.grad_scale;
    const GradNorm norm = gradient_norm(params, scale);
    adamw_step(tensors, {}, 1, scale * clip_of(norm.sum_squares, scale, kMostNorm, w->loss).factor);
    return;
  }
  kernels->sum_squares(params, squares, lists);
  kernels->decide(params, squares, &w->loss, kMostNorm, &w->scalars, &w->decision);
  kernels->adamw(tensors, {},
                 {.scalars = &w->scalars,
                  .decision = &w->decision,
                  .numbers = reinterpret_cast<const double*>(&w->numbers),
                  .rates = rates,
                  .stats = reinterpret_cast<UpdateStat*>(squares + shapes.size()),
                  .lists = lists});
}

}  // namespace

UpdateWork::UpdateWork(Device& device, const std::vector<Shape>& shapes) : device_(device), shapes_(shapes) {
  for (const Shape& shape : shapes) {
    const int64_t count = shape.numel();
    elements_ += count;
    for (int i = 0; i < 4; ++i) {
      memory_.push_back(std::make_unique<DeviceMemory>(device, count * static_cast<int64_t>(sizeof(float))));
      void* const data = memory_.back()->data();
      if (i < 2)
        fill_random(device, data, DType::f32, count, memory_.size());
      else
        device.set_zero(data, memory_.back()->bytes());
    }
  }
  const UpdateWords words;
  std::vector<double> all(sizeof(words) / sizeof(double) + 4 * shapes.size(), words.scalars.lr);
  std::memcpy(all.data(), &words, sizeof(words));
  words_ = std::make_unique<DeviceMemory>(device, static_cast<int64_t>(all.size() * sizeof(double)));
  device.upload(words_->data(), all.data(), words_->bytes());
  kernels_ = select_update_kernels(device.kind(), "the update", std::span<const ParamView>());
  runs_ = kernels_ != nullptr || device.runs_host_kernels();
}

std::string UpdateWork::kernel() const {
  return kernels_ != nullptr ? kernels_->name : "cpu";
}

void UpdateWork::operator()() const {
  struct Owned {
    std::vector<Values> values;
    void* words;
    KernelAddresses addresses;
  };
  const auto owned = std::make_shared<Owned>();
  owned->values.resize(shapes_.size());
  for (size_t i = 0; i < memory_.size(); ++i) owned->values[i / 4][i % 4] = memory_[i]->data();
  for (size_t i = 0; i < memory_.size(); ++i)
    owned->addresses.add(owned->values[i / 4][i % 4], memory_[i]->bytes(), i % 4 != 1);
  owned->words = words_->data();
  owned->addresses.add(owned->words, words_->bytes(), true);
  KeptLists* const lists = device_.runs_host_kernels() ? nullptr : &lists_;
  lists_.restart();
  launch_through(device_, {owned->addresses.ranges(),
                           [owned, lists, shapes = shapes_, kernels = kernels_](std::span<void* const> at) {
                             owned->addresses.bind(at);
                             make_step(owned->values, shapes, owned->words, kernels, lists);
                           }});
}

}  // namespace ingot
