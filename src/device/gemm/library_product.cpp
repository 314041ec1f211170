// See library_product.h. The library's matrices lie column after column, so it computes the transposed
// product: the columns of its result are our rows, its first operand is our B and its second our A.
#include "device/gemm/library_product.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ingot {
namespace {

using namespace cublaslt;

constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr int kMostSuggestions = 64;  // of which many split k

/// The largest power of two that the address is a multiple of, up to what the library asks for.
uint32_t alignment_of(const void* address) {
  constexpr uintptr_t kMost = 256;
  const auto at = reinterpret_cast<uintptr_t>(address) | kMost;
  return static_cast<uint32_t>(at & (~at + 1));
}

/// A matrix [rows, depth], whose elements lie beside each other along one of both.
struct Stored {
  bool along_depth;
  int64_t rows, depth, stride;
};
Stored stored(int64_t rows, int64_t depth, int64_t row, int64_t along) {
  INGOT_CHECK(row == 1 || along == 1, "an operand with strides of {} and {}", row, along);
  return along == 1 ? Stored{true, rows, depth, row} : Stored{false, rows, depth, along};
}

}  // namespace

LibraryProducts::LibraryProducts(CudaDevice& device, const Library& library)
    : device_(device), library_(library) {
  if (device.driver().is_faked() != library.is_faked)  // its streams are no GPU's
    throw Error(fmt::format("cuBLASLt: '{}' is no library for {}", library.path, device.driver().name),
                "a faked driver takes a faked library");
  device_.compute_stream();  // the library's handle is of the thread's context
  check(library_.create(&handle_), "a handle");
  workspace_ = device_.allocate(kWorkspaceBytes);
}

LibraryProducts::~LibraryProducts() {
  device_.release(workspace_, kWorkspaceBytes);
  library_.destroy(handle_);
}

void LibraryProducts::check(Status status, const char* what) const {
  if (status == kSuccess) return;
  throw Error(fmt::format("cuBLASLt {} ('{}'): {} failed: {}", library_.version_text(), library_.path, what,
                          library_.text_of(status)),
              "name another library with INGOT_CUBLASLT_LIBRARY=PATH");
}

LibraryProducts::Plan::Plan(const LibraryProducts& of, const GpuMmaProduct& product)
    : of_(of), product_(product) {}

LibraryProducts::Plan::~Plan() {
  for (const Layout layout : {first_, second_, result_})
    if (layout != nullptr) of_.library_.layout_destroy(layout);
  if (operation_ != nullptr) of_.library_.operation_destroy(operation_);
}

Status LibraryProducts::Plan::ask() const {
  const float alpha = 1, beta = product_.accumulate ? 1 : 0;
  return of_.library_.multiply(of_.handle_, operation_, &alpha, product_.b, first_, product_.a, second_,
                               &beta, product_.c, result_, product_.c, result_, &algorithm_, of_.workspace_,
                               workspace_, of_.device_.compute_stream());
}

void LibraryProducts::Plan::operator()() const {
  of_.check(ask(), "a product");
}

bool LibraryProducts::Plan::runs() const {
  return ask() == kSuccess;
}

bool LibraryProducts::may_be_taken(const Suggestion& s) const {
  int32_t splits = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  if (s.state != kSuccess || s.workspace > static_cast<size_t>(kWorkspaceBytes)) return false;
  check(library_.algorithm_get(&s.algorithm, kSplitsOfK, &splits, sizeof(splits), &written),
        "a question about an algorithm");
  check(library_.algorithm_get(&s.algorithm, kReduction, &reduction, sizeof(reduction), &written),
        "a question about an algorithm");
  return (splits == 0 || splits == 1) && reduction == kNoReduction;
}

std::unique_ptr<LibraryProducts::Plan> LibraryProducts::make(const GpuMmaProduct& p) const {
  INGOT_CHECK(p.a_is == MmaOperand::bf16 && p.b_is == MmaOperand::bf16 && p.bias == nullptr &&
                  p.plus == nullptr && epilogue_of(p) == Epilogue::none,
              "the library's products are of bf16, and nothing but C is added to them");
  const Stored b = stored(p.n, p.k, p.b_column, p.b_k), a = stored(p.m, p.k, p.a_row, p.a_k);
  std::unique_ptr<Plan> plan(new Plan(*this, p));
  const auto layout = [&](Layout& to, int type, int64_t rows, int64_t columns, int64_t stride) {
    check(library_.layout_create(&to, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                 stride),
          "a layout");
  };
  check(library_.operation_create(&plan->operation_, kComputeFloat, kFloat), "an operation");
  const int32_t first = b.along_depth ? kTransposed : kAsItIs, second = a.along_depth ? kAsItIs : kTransposed;
  check(library_.operation_set(plan->operation_, kTransposeA, &first, sizeof(first)), "an operation");
  check(library_.operation_set(plan->operation_, kTransposeB, &second, sizeof(second)), "an operation");
  const auto operand = [&](Layout& to, const Stored& s) {
    s.along_depth ? layout(to, kBfloat16, s.depth, s.rows, s.stride)
                  : layout(to, kBfloat16, s.rows, s.depth, s.stride);
  };
  operand(plan->first_, b);
  operand(plan->second_, a);
  layout(plan->result_, p.c_type == DType::bf16 ? kBfloat16 : kFloat, p.n, p.m, p.c_row);
  return plan;
}

std::vector<std::unique_ptr<LibraryProducts::Plan>> LibraryProducts::plans(const GpuMmaProduct& p,
                                                                           int most) const {
  struct Wish {
    explicit Wish(const Library& l) : library(l) {}
    ~Wish() {
      if (preference != nullptr) library.preference_destroy(preference);
    }
    const Library& library;
    Preference preference = nullptr;
  } wish(library_);
  check(library_.preference_create(&wish.preference), "a preference");
  const auto prefer = [&](int attribute, auto value) {
    check(library_.preference_set(wish.preference, attribute, &value, sizeof(value)), "a preference");
  };
  prefer(kMostWorkspace, static_cast<uint64_t>(kWorkspaceBytes));
  prefer(kReductionMask, kNoReduction);
  const std::array<const void*, 4> operands{p.b, p.a, p.c, p.c};
  for (int i = 0; i < 4; ++i) prefer(kAlignmentA + i, alignment_of(operands[static_cast<size_t>(i)]));

  std::unique_ptr<Plan> plan = make(p);
  std::array<Suggestion, kMostSuggestions> suggestions{};
  int count = 0;
  const Status status =
      library_.suggest(handle_, plan->operation_, plan->first_, plan->second_, plan->result_, plan->result_,
                       wish.preference, kMostSuggestions, suggestions.data(), &count);
  std::vector<std::unique_ptr<Plan>> found;
  if (status == kNotSupported) return found;
  check(status, "the search for an algorithm");
  for (int i = 0; i < count && static_cast<int>(found.size()) < most; ++i) {
    const Suggestion& s = suggestions[static_cast<size_t>(i)];
    if (!may_be_taken(s)) continue;
    if (plan == nullptr) plan = make(p);
    plan->algorithm_ = s.algorithm, plan->workspace_ = s.workspace;
    found.push_back(std::move(plan));
  }
  return found;
}

std::unique_ptr<LibraryProducts::Plan> LibraryProducts::row_of(const Plan& of, int64_t row) const {
  GpuMmaProduct p = of.product_;
  advance(p, row * p.a_row, 0, row * p.c_row);
  p.m = 1;
  return by_algorithm_of(of, p);
}

std::unique_ptr<LibraryProducts::Plan> LibraryProducts::by_algorithm_of(const Plan& of,
                                                                        const GpuMmaProduct& p) const {
  std::unique_ptr<Plan> plan = make(p);
  Suggestion result{};
  if (library_.algorithm_check(handle_, plan->operation_, plan->first_, plan->second_, plan->result_,
                               plan->result_, &of.algorithm_, &result) != kSuccess ||
      result.workspace > static_cast<size_t>(kWorkspaceBytes))
    return nullptr;
  plan->algorithm_ = of.algorithm_, plan->workspace_ = result.workspace;
  return plan;
}

}  // namespace ingot
