// See device_bench.h: what is measured, and how. The report is in device_bench_text.cpp.
#include "measure/device_bench.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/gemm/library_product.h"
#include "measure/device_work.h"
#include "ops/activation/activation.h"
#include "ops/add_norm/add_norm.h"
#include "ops/attention/attention.h"
#include "ops/gpu_proof.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/mix/mix.h"
#include "report/table.h"

namespace ingot {
namespace {

using Work = std::function<void()>;
using Inputs = std::vector<std::optional<WorkInput>>;

constexpr OpPass kPasses[] = {OpPass::forward, OpPass::input_gradient, OpPass::weight_gradient};
constexpr double kProductBar = 0.90, kGroupedBar = 0.70, kRowBar = 0.70, kUpdateBar = 0.75;
constexpr int kMostCalls = 10000;  // of a trial

std::optional<WorkInput> input(DType type, Shape shape) {
  return WorkInput{{shape, type}};
}

/// The product that such work is.
GpuMmaProduct operands_of(const OpWork& work, const ProductSizes& s, OpPass pass) {
  GpuMmaProduct p;
  p.c = work.result().data, p.c_type = work.result().dtype();
  if (pass == OpPass::forward) {
    p.m = s.rows, p.n = s.n, p.k = s.k;
    p.a = work.x().data, p.a_row = s.k;
    p.b = work.weight().data, p.b_k = 1, p.b_column = s.k;
  } else if (pass == OpPass::input_gradient) {
    p.m = s.rows, p.n = s.k, p.k = s.n;
    p.a = work.d_y().data, p.a_row = s.n;
    p.b = work.weight().data, p.b_k = s.k;
  } else {
    p.m = s.n, p.n = s.k, p.k = s.rows;
    p.a = work.d_y().data, p.a_row = 1, p.a_k = s.n;
    p.b = work.x().data, p.b_k = s.k;
  }
  p.c_row = p.n;
  return p;
}

class Bench {
 public:
  Bench(Device& device, const DeviceBenchOptions& options) : device_(device), options_(options) {
    report_.is_real = is_gpu(device);
    report_.kind = name_of(device.kind()), report_.device = "the emulator";
    report_.peer = "none: cuBLASLt multiplies on device 'cuda'";
    if (device.kind() == DeviceKind::cuda) describe_gpu();
    make_limits();
  }

  DeviceBenchReport run() {
    for (const DevicePart part : kEveryDevicePart) {
      if (std::find(options_.parts.begin(), options_.parts.end(), part) == options_.parts.end()) continue;
      part_ = part;
      (this->*function_of(part))();
    }
    if (peaks_.empty()) peaks_.push_back(seconds_of(peak_));
    if (copies_.empty()) copies_.push_back(seconds_of(copy_));
    report_.peak = spread_over(peaks_, [this](double seconds) { return peak_flops_ / seconds; });
    report_.copy = spread_over(copies_, [this](double seconds) { return copy_bytes_ / seconds; });
    return std::move(report_);
  }

 private:
  /// What a trial repeats.
  struct Subject {
    Work work;
    int calls = 0;  ///< of a trial
  };

  void (Bench::*function_of(DevicePart part))() {
    switch (part) {
      case DevicePart::products:
        return &Bench::products;
      case DevicePart::grouped:
        return &Bench::grouped;
      case DevicePart::rows:
        return &Bench::rows;
      case DevicePart::update:
        return &Bench::update;
      case DevicePart::attention:
        return &Bench::attention;
      case DevicePart::exact:
        return &Bench::exact;
      case DevicePart::copies:
        return &Bench::copies;
      case DevicePart::launches:
        return &Bench::launches;
    }
    return nullptr;
  }

  void describe_gpu() {
    const cuda_driver::Driver& driver = cuda_device().driver();
    report_.device =
        fmt::format("{}, {}, driver of CUDA {}", driver.name, driver.architecture(), driver.version_text());
    try {
      const cublaslt::Library library = cublaslt::open_library();
      library_ = std::make_unique<LibraryProducts>(cuda_device(), library);
      report_.peer = fmt::format("cuBLASLt {} ('{}')", library.version_text(), library.path);
    } catch (const Error& e) {
      report_.peer = fmt::format("none: {} ({})", e.what(), e.hint());
    }
  }

  void make_limits() {
    const int64_t size = options_.small ? 64 : 8192;
    const ProductSizes sizes{size, size, size};
    peak_work_ = product_work(device_, sizes, DType::bf16, OpPass::forward);
    if (!peak_work_->runs())
      throw Error(fmt::format("device '{}' has no kernel for products of bf16", name_of(device_.kind())));
    peak_flops_ = peak_work_->flops();
    peak_.work = [this] { (*peak_work_)(); };
    report_.peak_of = fmt::format("our product of bf16, {0} x {0} x {0}", size);
    if (library_ != nullptr) {
      peak_plan_ = fastest_plan(operands_of(*peak_work_, sizes, OpPass::forward));
      if (peak_plan_ != nullptr) {
        peak_.work = [this] { (*peak_plan_)(); };
        report_.peak_of = fmt::format("cuBLASLt's product of bf16, {0} x {0} x {0}", size);
      }
    }
    const int64_t bytes = options_.small ? int64_t{1} << 16 : int64_t{1} << 30;
    copied_[0] = std::make_unique<DeviceMemory>(device_, bytes);
    copied_[1] = std::make_unique<DeviceMemory>(device_, bytes);
    fill_random(device_, copied_[0]->data(), DType::f32, bytes / 4, 1);
    copy_bytes_ = 2 * static_cast<double>(bytes);
    copy_.work = [this, bytes] { device_.copy(copied_[1]->data(), copied_[0]->data(), bytes); };
  }

  /// Mean seconds of a call, once the device has done all that a trial asks it for.
  double seconds_of(Subject& s) const {
    if (s.calls == 0) {
      seconds_on(device_, s.work, 1);
      const double one = seconds_on(device_, s.work, 1);
      s.calls = std::clamp(static_cast<int>(options_.seconds / std::max(one, 1e-9)), 1, kMostCalls);
    }
    return seconds_on(device_, s.work, s.calls);
  }
  /// The library's fastest way; nullptr: it has none that may be taken.
  std::unique_ptr<LibraryProducts::Plan> fastest_plan(const GpuMmaProduct& product) const {
    std::unique_ptr<LibraryProducts::Plan> best;
    double least = 0;
    for (auto& plan : library_->plans(product)) {
      if (!plan->runs()) continue;
      Subject s{[&plan] { (*plan)(); }};
      const double seconds = seconds_of(s);
      if (best == nullptr || seconds < least) best = std::move(plan), least = seconds;
    }
    return best;
  }

  enum class Limit { none, peak, copy };
  DeviceRow row_of(std::string what, std::string pass = {}) const {
    DeviceRow row;
    row.part = part_, row.what = std::move(what), row.pass = std::move(pass);
    return row;
  }
  /// A row of an op; false where no kernel takes it.
  bool describe(DeviceRow& row, const OpWork& work) {
    row.shapes = work.shapes();
    if (!work.runs()) {
      report_.left_out.push_back(fmt::format("{} {} of {}", row.what, row.pass, row.shapes));
      return false;
    }
    row.kernel = work.kernel(), row.flops = work.flops(), row.bytes = work.bytes();
    return true;
  }

  /// Interleaved trials of the work, of its peer if there is one, and of its limit.
  void measure(DeviceRow row, const Work& own, Limit limit, const Work& peer = {}) {
    Subject of_own{own}, of_peer{peer};
    std::vector<Subject*> subjects{&of_own};
    if (peer) subjects.push_back(&of_peer);
    if (limit != Limit::none) subjects.push_back(limit == Limit::peak ? &peak_ : &copy_);
    const auto trials =
        interleaved(options_.trials, subjects.size(), [&](size_t i) { return seconds_of(*subjects[i]); });
    const std::vector<double>& mine = trials[0];
    row.seconds = spread_of(mine);
    const auto share = [&](const std::vector<double>& other, double scale) {
      std::vector<double> shares;
      for (size_t i = 0; i < mine.size(); ++i) shares.push_back(scale * other[i] / mine[i]);
      return spread_of(shares);
    };
    if (peer) row.peer_seconds = spread_of(trials[1]), row.peer_share = share(trials[1], 1);
    if (limit != Limit::none) {
      const bool peak = limit == Limit::peak;
      const std::vector<double>& of_limit = trials.back();
      row.limit = peak ? "P" : "B";
      row.limit_share = share(of_limit, peak ? row.flops / peak_flops_ : row.bytes / copy_bytes_);
      std::vector<double>& all = peak ? peaks_ : copies_;
      all.insert(all.end(), of_limit.begin(), of_limit.end());
    }
    report_.rows.push_back(std::move(row));
  }

  /// The first bytes of a result.
  std::vector<char> beginning(const Tensor& t) const {
    constexpr int64_t kMost = 1 << 20;
    std::vector<char> bytes(static_cast<size_t>(std::min(kMost, t.bytes())));
    device_.download(bytes.data(), t.data, static_cast<int64_t>(bytes.size()));
    return bytes;
  }

  /// Whether the library gives a row of its product the same bits alone.
  std::string a_row_alone(const LibraryProducts::Plan& plan, const Tensor& result) const {
    constexpr int64_t kRow = 32;
    const auto alone = library_->row_of(plan, kRow);
    if (alone == nullptr || !alone->runs()) return "refuses";
    const Tensor row = result.slice(kRow, kRow + 1);
    plan();
    const std::vector<char> among_others = beginning(row);
    device_.set_zero(row.data, row.bytes());
    (*alone)();
    return beginning(row) == among_others ? "same" : "others";
  }

  void products() {
    const std::vector<ProductSizes> all =
        options_.small
            ? std::vector<ProductSizes>{{72, 136, 64}, {64, 67, 72}}
            : std::vector<ProductSizes>{{16384, 2304, 768}, {16384, 768, 768},   {16384, 3072, 768},
                                        {16384, 768, 3072}, {16384, 50304, 768}, {16384, 50257, 768},
                                        {4096, 4096, 4096}, {8192, 8192, 8192}};
    for (const ProductSizes& s : all)
      for (const OpPass pass : kPasses) {
        DeviceRow row = row_of("linear", name_of(pass));
        const auto work = product_work(device_, s, DType::bf16, pass);
        if (!describe(row, *work)) continue;
        std::unique_ptr<LibraryProducts::Plan> plan;
        if (library_ != nullptr) plan = fastest_plan(operands_of(*work, s, pass));
        if (plan == nullptr) {
          measure(row, std::ref(*work), Limit::peak);
          continue;
        }
        (*work)();
        const std::vector<char> ours = beginning(work->result());
        (*plan)();
        row.bits = ours == beginning(work->result()) ? "same" : "others";
        if (pass != OpPass::weight_gradient) row.alone = a_row_alone(*plan, work->result());
        row.peer = "cuBLASLt", row.bar = kProductBar;
        measure(row, std::ref(*work), Limit::peak, std::ref(*plan));
      }
    products_of_masters(all[options_.small ? 0 : 2]);
  }

  /// As a bf16 run reads its weights: f32 that is rounded first.
  void products_of_masters(const ProductSizes& s) {
    for (const OpPass pass : {OpPass::forward, OpPass::input_gradient}) {
      DeviceRow row = row_of("linear, weights of f32", name_of(pass));
      const WorkInput weight{{{s.n, s.k}, DType::bf16, &kRoundedWeight}};
      const OpWork work(device_, linear_op(), AttrBox(LinearAttr{DType::bf16}),
                        {input(DType::bf16, {s.rows, s.k}), weight, std::nullopt}, pass);
      if (describe(row, work)) measure(row, std::ref(work), Limit::peak);
    }
  }

  void grouped() {
    struct Groups {
      int64_t rows, n, k;  ///< rows of an expert, in the mean
      bool uneven;
    };
    const int64_t experts = options_.small ? 3 : 8;
    const std::vector<Groups> all = options_.small ? std::vector<Groups>{{24, 72, 64, true}}
                                                   : std::vector<Groups>{{256, 4096, 2048, false},
                                                                         {1024, 4096, 2048, false},
                                                                         {1024, 4096, 2048, true},
                                                                         {1024, 2048, 4096, false}};
    for (const Groups& g : all)
      for (const OpPass pass : kPasses) {
        WorkInput ends{{{experts + 1}, DType::i32}, {0}};
        const int64_t rows = experts * g.rows;
        for (int64_t e = 1; e <= experts; ++e) {  // uneven: from half of the mean to one and a half
          const int64_t end =
              g.uneven ? e * g.rows / 2 + e * (e - 1) * g.rows / 2 / (experts - 1) : e * g.rows;
          ends.words.push_back(static_cast<int32_t>(std::min(end, rows)));
        }
        ends.words.back() = static_cast<int32_t>(rows);
        DeviceRow row = row_of(
            fmt::format("{} experts, {}{} rows each", experts, g.uneven ? "~" : "", g.rows), name_of(pass));
        const OpWork work(device_, grouped_linear_op(), AttrBox(GroupedLinearAttr{DType::bf16}),
                          {input(DType::bf16, {rows, g.k}), input(DType::bf16, {experts, g.n, g.k}), ends},
                          pass);
        const auto dense = product_work(device_, {rows, g.n, g.k}, DType::bf16, pass);
        if (!describe(row, work) || !dense->runs()) continue;
        row.flops = dense->flops(), row.peer = "dense", row.bar = kGroupedBar;
        measure(row, std::ref(work), Limit::peak, std::ref(*dense));
      }
  }

  void row_kernel(const std::string& what, const Op& op, const AttrBox& attr, const Inputs& inputs) {
    for (const OpPass pass : {OpPass::forward, OpPass::input_gradient}) {
      DeviceRow row = row_of(what, name_of(pass));
      const OpWork work(device_, op, attr, inputs, pass);
      if (!describe(row, work)) continue;
      row.bar = kRowBar;
      measure(row, std::ref(work), Limit::copy);
    }
  }

  /// Of more bytes than caches hold.
  void rows() {
    const int64_t t = options_.small ? 24 : 32768, d = options_.small ? 48 : 4096;
    const auto stream = input(DType::f32, {t, d}), value = input(DType::bf16, {t, d}),
               vector = input(DType::f32, {d}), scalar = input(DType::f32, {1});
    for (const NormKind norm : {NormKind::rms, NormKind::layer}) {
      const AddNormAttr attr{norm, MergeKind::add, DType::bf16};
      const auto bias = norm == NormKind::layer ? vector : std::nullopt;
      row_kernel(fmt::format("add_norm {}", name_of(norm)), add_norm_op(), AttrBox(attr),
                 {stream, value, std::nullopt, std::nullopt, std::nullopt, std::nullopt, vector, bias});
    }
    for (const ActivationKind kind : {ActivationKind::swiglu, ActivationKind::gelu})
      row_kernel(fmt::format("activation {}", name_of(kind)), activation_op(),
                 AttrBox(ActivationAttr{kind, DType::bf16}),
                 {input(DType::bf16, {t, is_gated(kind) ? 2 * d : d}), std::nullopt, std::nullopt});
    row_kernel("mix", mix_op(), AttrBox(MixAttr{DType::f32, 0, true, true}), {stream, value, scalar, scalar});
  }

  void update() {
    std::vector<Shape> shapes{{50304, 768}, {1024, 768}};
    for (int layer = 0; layer < 12; ++layer)
      for (const Shape& s : {Shape{2304, 768}, Shape{768, 768}, Shape{3072, 768}, Shape{768, 3072}})
        shapes.push_back(s);
    if (options_.small) shapes = {{130, 130}, {7}};
    DeviceRow row = row_of("norm, clip, AdamW");
    const UpdateWork work(device_, shapes);
    row.shapes = fmt::format("{} f32 in {} tensors", work.elements(), shapes.size());
    if (!work.runs()) return report_.left_out.push_back(row.what + " of " + row.shapes);
    row.kernel = work.kernel(), row.bytes = work.bytes(), row.bar = kUpdateBar;
    measure(row, std::ref(work), Limit::copy);
  }

  void attention() {
    struct Case {
      int64_t documents, length, heads, kv_heads, width;
    };
    const std::vector<Case> all = options_.small
                                      ? std::vector<Case>{{2, 40, 2, 1, 32}}
                                      : std::vector<Case>{{16, 1024, 12, 12, 64}, {4, 4096, 32, 8, 128}};
    for (const Case& c : all)
      for (const OpPass pass : {OpPass::forward, OpPass::input_gradient}) {
        BatchLayout layout;
        for (; layout.count < c.documents * c.length; layout.count += c.length)
          layout.spans.push_back({layout.count, c.length});
        const AttentionAttr attr{
            .heads = c.heads, .kv_heads = c.kv_heads, .head_width = c.width, .rows = &layout};
        DeviceRow row = row_of(fmt::format("{} x {} tokens, {}/{} heads of {}", c.documents, c.length,
                                           c.heads, c.kv_heads, c.width),
                               name_of(pass));
        const OpWork work(device_, attention_op(), AttrBox(attr),
                          {input(DType::bf16, {layout.count, attr.packed_width()}), std::nullopt}, pass);
        if (describe(row, work)) measure(row, std::ref(work), Limit::peak);
      }
  }

  void exact() {
    const int64_t size = options_.small ? 40 : 4096;
    for (const OpPass pass : kPasses) {
      DeviceRow row = row_of("linear", name_of(pass));
      const auto work = product_work(device_, {size, size, size}, DType::f32, pass);
      if (describe(row, *work)) measure(row, std::ref(*work), Limit::none);
    }
  }

  void copies() {
    const int64_t bytes = options_.small ? int64_t{1} << 16 : int64_t{1} << 28;
    std::vector<char> host(static_cast<size_t>(bytes), 1);
    const auto both = [&](const char* of) {
      DeviceRow there = row_of(fmt::format("{} host to device", of)),
                back = row_of(fmt::format("device to {} host", of));
      there.bytes = back.bytes = static_cast<double>(bytes);
      measure(
          there, [&] { device_.upload(copied_[0]->data(), host.data(), bytes); }, Limit::none);
      measure(
          back, [&] { device_.begin_download(host.data(), copied_[0]->data(), bytes, StreamRole::compute); },
          Limit::none);
    };
    both("pageable");
    if (device_.kind() == DeviceKind::cuda) {
      cuda_device().pin(host.data(), bytes);
      both("pinned");
      cuda_device().unpin(host.data());
    }
    DeviceRow within = row_of("within the device, read and written");
    within.bytes = copy_bytes_;
    measure(within, copy_.work, Limit::none);
  }

  void launches() {
    constexpr int kLaunches = 64;
    const OpWork work(device_, activation_op(), AttrBox(ActivationAttr{ActivationKind::gelu, DType::bf16}),
                      {input(DType::bf16, {1, 16}), std::nullopt, std::nullopt}, OpPass::forward);
    DeviceRow row = row_of(fmt::format("{} launches, one by one", kLaunches), name_of(OpPass::forward));
    if (!describe(row, work)) return;
    const Work one_by_one = [&] {
      for (int i = 0; i < kLaunches; ++i) work();
    };
    row.flops *= kLaunches, row.bytes *= kLaunches;
    measure(row, one_by_one, Limit::none);
    if (!device_.captures_graphs()) return;
    device_.begin_capture();
    one_by_one();
    const DeviceGraph graph = device_.end_capture();
    row.what = fmt::format("{} launches, a graph", kLaunches), row.peer = "one by one";
    const std::vector<char> before = beginning(work.result());
    device_.set_zero(work.result().data, work.result().bytes());
    device_.replay(graph);
    row.bits = beginning(work.result()) == before ? "same" : "others";
    measure(
        row, [&] { device_.replay(graph); }, Limit::none, one_by_one);
  }

  Device& device_;
  const DeviceBenchOptions& options_;
  DeviceBenchReport report_;
  DevicePart part_ = DevicePart::products;
  std::unique_ptr<LibraryProducts> library_;  ///< nullptr: there is none
  std::unique_ptr<OpWork> peak_work_;
  std::unique_ptr<LibraryProducts::Plan> peak_plan_;
  std::unique_ptr<DeviceMemory> copied_[2];
  Subject peak_, copy_;
  double peak_flops_ = 0, copy_bytes_ = 0;
  std::vector<double> peaks_, copies_;  ///< seconds of a call
};

}  // namespace

DeviceBenchReport bench_device(DeviceKind kind, const DeviceBenchOptions& options) {
  if (kind != DeviceKind::cuda && kind != DeviceKind::sim)
    throw Error(
        fmt::format("`ingot bench device` measures kernels of device cuda or sim, not '{}'", name_of(kind)),
        "`ingot bench gemm` and `ingot bench ops` measure the CPU's");
  set_kernels("unproven");
  return Bench(device_of(kind), options).run();
}

}  // namespace ingot
