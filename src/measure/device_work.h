// Work that a benchmark asks a device for again and again: calls of ops on tensors of random values there, by
// the kernel that a training step would take, the end of a training step, and copies. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/gpu/workspace.h"
#include "measure/profile.h"
#include "tape/node.h"

namespace ingot {

struct UpdateKernels;  // optim/update_kernels.h

/// Memory of a device.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, int64_t bytes)
      : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~DeviceMemory() { device_.release(data_, bytes_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device& device_;
  const int64_t bytes_;
  void* const data_;
};

/// Fills memory of a device with floats or bf16 in [-1, 1), a pattern of the seed that repeats.
void fill_random(Device& device, void* to, DType type, int64_t count, uint64_t seed);

/// An input of an op: random values, or whole numbers.
struct WorkInput {
  TensorMeta meta;
  std::vector<int32_t> words = {};  ///< of an input of i32
};

/// One pass of an op.
class OpWork {
 public:
  /// `inputs`: by slot; std::nullopt: absent. What `attr` points to must outlive this.
  OpWork(Device& device, const Op& op, const AttrBox& attr,
         const std::vector<std::optional<WorkInput>>& inputs, OpPass pass);
  OpWork(const OpWork&) = delete;
  OpWork& operator=(const OpWork&) = delete;
  /// Whether a kernel of the device takes it.
  bool runs() const { return kernel_ != nullptr; }
  /// Asks the device for it once.
  void operator()() const { execute(); }
  std::string kernel() const { return kernel_->name; }
  /// "1024x768 bf16, 2304x768 bf16": the inputs of the op.
  const std::string& shapes() const { return shapes_; }
  double flops() const { return flops_; }
  double bytes() const { return bytes_; }
  /// Operands of a product (linear): x, the weight and y or their gradients.
  const Tensor& x() const { return in_[0]; }
  const Tensor& weight() const { return in_[1]; }
  const Tensor& d_y() const { return d_out_[0]; }
  /// The first output, or the first gradient that is written.
  const Tensor& result() const;

 private:
  Tensor make(const TensorMeta& meta);
  void make_tensors(const std::vector<std::optional<WorkInput>>& inputs, Direction direction);
  /// Runs the pass once, on what it reads of the tensors.
  void prepare(Direction direction);
  void execute() const;

  Device& device_;
  const Node node_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<Tensor> in_, out_, d_out_;  ///< of all slots; undefined: absent
  std::vector<GradSlot> d_in_;
  // The call.
  Direction direction_ = Direction::forward;
  std::vector<Tensor> read_in_, read_out_;
  std::vector<GradSlot> written_;
  OpCall call_;
  int64_t scratch_bytes_ = 0;
  const Kernel* kernel_ = nullptr;
  std::string shapes_;
  double flops_ = 0, bytes_ = 0;
};

/// y = x W^T of `type`, by the op linear, or a gradient of it.
struct ProductSizes {
  int64_t rows, n, k;
};
std::unique_ptr<OpWork> product_work(Device& device, const ProductSizes& sizes, DType type, OpPass pass);

/// The peak of a device: the rate of our product of bf16, 8192 x 8192 x 8192; a small one where it is no GPU.
class DevicePeak {
 public:
  /// Error where the device has no kernel for it.
  explicit DevicePeak(Device& device);
  /// Measures it, in GFLOP/s, as device/machine/peak.h measures the CPU's.
  double operator()() const;

 private:
  Device& device_;
  std::unique_ptr<OpWork> product_;
};

/// Whether times of the device are those of a GPU, neither simulated nor of a driver that is faked.
bool is_gpu(const Device& device);
/// Mean seconds of so many calls of work in its compute stream.
double seconds_on(Device& device, const std::function<void()>& work, int calls);

/// Norm of the gradients, clip factor and AdamW, of f32 tensors.
class UpdateWork {
 public:
  UpdateWork(Device& device, const std::vector<Shape>& shapes);
  bool runs() const { return runs_; }
  /// Asks for a step, as training does.
  void operator()() const;
  std::string kernel() const;
  /// Of the gradient once, and of weights, gradient and moments as optim/adamw.h says.
  double bytes() const { return 32.0 * static_cast<double>(elements_); }
  int64_t elements() const { return elements_; }

 private:
  Device& device_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;  ///< weights, gradient and moments of each tensor
  std::unique_ptr<DeviceMemory> words_;                ///< what a step says, measures and decides
  mutable KeptLists lists_;
  std::vector<Shape> shapes_;
  const UpdateKernels* kernels_ = nullptr;
  bool runs_ = false;
  int64_t elements_ = 0;
};

}  // namespace ingot
