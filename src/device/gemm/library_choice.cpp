// See library_choice.h.
#include "device/gemm/library_choice.h"

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/philox.h"

namespace ingot {
namespace {

constexpr int64_t kReferenceRows = 4096;  ///< or k, where an algorithm is chosen
constexpr int64_t kAlone[] = {0, 1, 77, kReferenceRows - 1};
/// Operands of products lie at such multiples, seldom at larger ones.
constexpr int64_t kAlignment = 16;

/// Rows are those of A and C; else they are k (gradients of weights).
bool has_rows(const GpuMmaProduct& p) {
  return p.a_k == 1;
}

/// Memory of the device for `elements`, at no larger multiple than kAlignment.
class Scratch {
 public:
  Scratch(CudaDevice& device, int64_t elements, DType type)
      : device_(device), bytes_(elements * size_of(type)), memory_(device.allocate(bytes_ + kAlignment)) {}
  ~Scratch() { device_.release(memory_, bytes_ + kAlignment); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return static_cast<char*>(memory_) + kAlignment; }
  void fill(uint64_t stream) const {
    const Random random(5, RandomPurpose::test, stream);
    std::vector<bf16> values(static_cast<size_t>(bytes_) / sizeof(bf16));
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(static_cast<float>(random.normal(i)));
    device_.upload(data(), values.data(), bytes_);
  }

 private:
  CudaDevice& device_;
  const int64_t bytes_;
  void* const memory_;
};

std::string& asked_for() {
  static std::string name = [] {
    const char* const text = std::getenv("INGOT_PRODUCTS");
    return std::string(text != nullptr ? text : "own");
  }();
  return name;
}

bool is_asked_for() {
  const std::string& name = asked_for();
  if (name != "own" && name != "cublaslt")
    throw Error(fmt::format("INGOT_PRODUCTS is '{}', expected 'own' or 'cublaslt'", name),
                "without it products are our own");
  return name == "cublaslt";
}

}  // namespace

LibraryChoice::LibraryChoice(CudaDevice& device, const cublaslt::Library& library)
    : device_(device), products_(device, library) {}

LibraryChoice::Form LibraryChoice::form_of(const GpuMmaProduct& p) {
  const bool rows = has_rows(p);
  return {rows ? 0 : p.m, p.n, rows ? p.k : 0, p.a_row, p.a_k, p.b_k, p.b_column, p.c_row, p.c_type};
}

bool LibraryChoice::multiply(const GpuMmaProduct& product) {
  const Form form = form_of(product);
  auto found = chosen_.find(form);
  if (found == chosen_.end()) found = chosen_.emplace(form, choose(product)).first;
  if (found->second == nullptr) return false;
  const auto plan = products_.by_algorithm_of(*found->second, product);
  if (plan == nullptr)
    throw Error(fmt::format("cuBLASLt refuses {} x {} x {} by the algorithm that it has for these products",
                            product.m, product.n, product.k),
                "without INGOT_PRODUCTS=cublaslt products are our own");
  (*plan)();
  return true;
}

/// The first algorithm that may be taken; nullptr: there is none.
std::unique_ptr<LibraryProducts::Plan> LibraryChoice::choose(GpuMmaProduct p) const {
  (has_rows(p) ? p.m : p.k) = kReferenceRows;
  p.accumulate = false;
  const auto extent = [](int64_t rows, int64_t row, int64_t depth, int64_t along) {
    return (rows - 1) * row + (depth - 1) * along + 1;
  };
  const Scratch a(device_, extent(p.m, p.a_row, p.k, p.a_k), DType::bf16),
      b(device_, extent(p.n, p.b_column, p.k, p.b_k), DType::bf16), c(device_, p.m * p.c_row, p.c_type);
  a.fill(1), b.fill(2);
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  for (auto& plan : products_.plans(p))
    if (plan->runs() && (!has_rows(p) || keeps_rows(*plan, p))) return std::move(plan);
  log::info("cuBLASLt has no algorithm for products of {} x {} whose rows keep their bits: ours multiply",
            p.n, has_rows(p) ? p.k : p.m);
  return nullptr;
}

/// Whether rows alone have the bits that they have in `plan`'s product, which is there.
bool LibraryChoice::keeps_rows(const LibraryProducts::Plan& plan, const GpuMmaProduct& p) const {
  const int64_t row_bytes = p.n * size_of(p.c_type);
  std::vector<char> among(static_cast<size_t>(row_bytes)), alone = among;
  for (const int64_t row : kAlone) {
    void* const at = static_cast<char*>(p.c) + row * p.c_row * size_of(p.c_type);
    device_.download(among.data(), at, row_bytes);
    device_.set_zero(at, row_bytes);
    const auto of_row = products_.row_of(plan, row);
    if (of_row == nullptr || !of_row->runs()) return false;
    device_.download(alone.data(), at, row_bytes);
    if (alone != among) return false;
  }
  return true;
}

LibraryChoice* library_of_thread() {
  auto* const device = dynamic_cast<CudaDevice*>(gpu_launcher());
  if (device == nullptr || !is_asked_for()) return nullptr;
  static thread_local std::unique_ptr<LibraryChoice> choice;
  static thread_local CudaDevice* of = nullptr;
  if (of != device) {
    choice = std::make_unique<LibraryChoice>(*device, cublaslt::open_library());
    of = device;
  }
  return choice.get();
}

std::string library_that_multiplies() {
  return is_asked_for() ? "cuBLASLt " + cublaslt::open_library().version_text() : "";
}

void set_products(const std::string& name) {
  asked_for() = name;
}

}  // namespace ingot
