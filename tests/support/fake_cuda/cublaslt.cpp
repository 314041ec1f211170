// See support/fake_cuda.h. The names are those of NVIDIA's cuBLASLt, matrices lie column after column.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "device/gpu/launcher.h"
#include "support/fake_cuda.h"

namespace {

using Status = int;
constexpr Status kSuccess = 0, kInvalid = 7, kNotSupported = 15;
constexpr int kFloat = 0, kBfloat16 = 14, kComputeFloat = 68;

ingot::test::FakeCublasLt state;

struct Operation {
  int32_t transposed[2] = {};
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7, alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t number, splits, reduction, unused[5];
};
struct Suggestion {
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

template <class T>
Status set(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalid;
  std::memcpy(&to, value, bytes);
  return kSuccess;
}

template <class T>
Status destroy(T* object) {
  delete object;
  --state.objects;
  return kSuccess;
}

#ifndef INGOT_FAKE_OLD_DRIVER
struct Product {
  Operation operation;
  Layout a, b, d;
  const void *at_a, *at_b;
  void* at_d;
  float beta;
  bool descends;
};

uint64_t rows_of(const Layout& l, int32_t transposed) {
  return transposed != 0 ? l.columns : l.rows;
}
float element(const void* at, const Layout& l, int32_t transposed, uint64_t i, uint64_t j) {
  const uint64_t row = transposed != 0 ? j : i, column = transposed != 0 ? i : j;
  return ingot::to_float(static_cast<const ingot::bf16*>(at)[row + column * static_cast<uint64_t>(l.stride)]);
}

void multiply(const void* arguments) {
  const Product& p = *static_cast<const Product*>(arguments);
  const int32_t of_a = p.operation.transposed[0], of_b = p.operation.transposed[1];
  const uint64_t depth = rows_of(p.b, of_b);
  for (uint64_t j = 0; j < p.d.columns; ++j)
    for (uint64_t i = 0; i < p.d.rows; ++i) {
      float sum = 0;
      for (uint64_t n = 0; n < depth; ++n) {
        const uint64_t k = p.descends ? depth - 1 - n : n;
        sum = std::fma(element(p.at_a, p.a, of_a, i, k), element(p.at_b, p.b, of_b, k, j), sum);
      }
      const uint64_t at = i + j * static_cast<uint64_t>(p.d.stride);
      if (p.d.type == kBfloat16) {
        auto* const d = static_cast<ingot::bf16*>(p.at_d) + at;
        *d = ingot::to_bf16(p.beta != 0 ? sum + p.beta * ingot::to_float(*d) : sum);
      } else {
        auto* const d = static_cast<float*>(p.at_d) + at;
        *d = p.beta != 0 ? sum + p.beta * *d : sum;
      }
    }
}
#endif

}  // namespace

extern "C" {

ingot::test::FakeCublasLt* ingot_fake_cublaslt() {
  return &state;
}

size_t cublasLtGetVersion() {
  return state.version;
}
const char* cublasLtGetStatusName(Status status) {
  return status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : nullptr;
}
Status cublasLtCreate(void** handle) {
  if (state.start != kSuccess) return state.start;
  *handle = &state;
  ++state.handles;
  return kSuccess;
}
Status cublasLtDestroy(void*) {
  --state.handles;
  return kSuccess;
}
Status cublasLtMatmulDescCreate(Operation** operation, int compute, int scale) {
  if (compute != kComputeFloat || scale != kFloat) return kInvalid;
  *operation = new Operation;
  ++state.objects;
  return kSuccess;
}
Status cublasLtMatmulDescDestroy(Operation* operation) {
  return destroy(operation);
}
Status cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value, size_t bytes) {
  return attribute == 3 || attribute == 4 ? set(operation->transposed[attribute - 3], value, bytes)
                                          : kInvalid;
}
Status cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                                  int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return kInvalid;
  *layout = new Layout{type, rows, columns, stride};
  ++state.objects;
  return kSuccess;
}
Status cublasLtMatrixLayoutDestroy(Layout* layout) {
  return destroy(layout);
}
Status cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  ++state.objects;
  return kSuccess;
}
Status cublasLtMatmulPreferenceDestroy(Preference* preference) {
  return destroy(preference);
}
Status cublasLtMatmulPreferenceSetAttribute(Preference* p, int attribute, const void* value, size_t bytes) {
  return attribute == 1                     ? set(p->workspace, value, bytes)
         : attribute == 3                   ? set(p->reductions, value, bytes)
         : attribute >= 5 && attribute <= 8 ? set(p->alignment[attribute - 5], value, bytes)
                                            : kInvalid;
}

/// What a caller must leave out comes first, also where the preference has left it out.
Status cublasLtMatmulAlgoGetHeuristic(void*, const Operation*, const Layout*, const Layout*, const Layout*,
                                      const Layout*, const Preference* preference, int most,
                                      Suggestion* suggestions, int* count) {
  *count = 0;
  if (preference->reductions != 0) return kInvalid;
  for (const uint32_t alignment : preference->alignment)
    if (alignment < state.alignment) return kNotSupported;
  const auto add = [&](const Algorithm& algorithm, Status ready = kSuccess) {
    if (*count < most) suggestions[(*count)++] = {algorithm, 0, ready, 1, {}};
  };
  add({0, 4, 0, {}});
  add({1, 1, 1, {}});
  add({2, 1, 0, {}}, kNotSupported);
  if (state.only_splits) return kSuccess;
  if (state.keeps_rows) add({3, 1, 0, {}});
  add({4, 1, 0, {}});
  return kSuccess;
}
Status cublasLtMatmulAlgoCheck(void*, const Operation*, const Layout*, const Layout*, const Layout*,
                               const Layout* d, const Algorithm* algorithm, Suggestion* result) {
  if (d->columns < state.fewest_rows) return kNotSupported;
  *result = {*algorithm, 0, kSuccess, 1, {}};
  return kSuccess;
}
Status cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value,
                                            size_t bytes, size_t* written) {
  if (bytes != 4 || (attribute != 2 && attribute != 3)) return kInvalid;
  const auto x = static_cast<uint32_t>(attribute == 2 ? algorithm->splits : algorithm->reduction);
  std::memcpy(value, &x, bytes);
  *written = bytes;
  return kSuccess;
}
#ifndef INGOT_FAKE_OLD_DRIVER
Status cublasLtMatmul(void*, const Operation* operation, const float* alpha, const void* a,
                      const Layout* of_a, const void* b, const Layout* of_b, const float* beta, const void* c,
                      const Layout*, void* d, const Layout* of_d, const Algorithm* algorithm, void* workspace,
                      size_t, void* stream) {
  if (state.refuses != kSuccess) return state.refuses;
  if (*alpha != 1 || c != d || workspace == nullptr || algorithm->number < 3 || of_a->type != kBfloat16 ||
      of_b->type != kBfloat16)
    return kInvalid;
  ++state.products;
  const Product product{
      *operation, *of_a, *of_b, *of_d, a, b, d, *beta, algorithm->number == 4 && of_d->columns > 1};
  if (rows_of(*of_a, operation->transposed[0]) != of_d->rows) return kInvalid;
  using Run = void (*)(const char*, int64_t, int, void (*)(const void*), const void*);
  using Launch = int (*)(void*, const ingot::GpuLaunch&, Run);
  static const auto launch = reinterpret_cast<Launch>(
      ::dlsym(::dlopen(ingot::test::kFakeCuda, RTLD_NOW | RTLD_LOCAL), "ingot_launch_host_code"));
  ingot::GpuLaunch k{"cublaslt", {1, 1}};
  k.body = multiply, k.arguments = &product, k.argument_bytes = sizeof(product);
  const Run run = [](const char*, int64_t, int, void (*body)(const void*), const void* arguments) {
    body(arguments);
  };
  return launch(stream, k, run) == 0 ? kSuccess : kInvalid;
}
#endif

}  // extern "C"
