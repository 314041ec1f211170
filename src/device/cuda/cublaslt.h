// NVIDIA's library of matrix products, opened when it is asked for, as the driver is (driver.h): nothing of
// it is linked, and the few functions and types that are used are declared here, as cublasLt.h of CUDA 13.0
// has them. device/gemm/library_product.h multiplies with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/driver.h"

namespace ingot::cublaslt {

using Status = int;  ///< cublasStatus_t
constexpr Status kSuccess = 0, kNotSupported = 15;

using Handle = struct HandleOfLibrary*;
using Operation = struct OperationOfLibrary*;    ///< cublasLtMatmulDesc_t
using Layout = struct LayoutOfLibrary*;          ///< cublasLtMatrixLayout_t
using Preference = struct PreferenceOfLibrary*;  ///< cublasLtMatmulPreference_t

// Types and operations, and attributes with the type of their value.
constexpr int kFloat = 0, kBfloat16 = 14;        // cudaDataType_t: CUDA_R_32F, CUDA_R_16BF
constexpr int kComputeFloat = 68;                // CUBLAS_COMPUTE_32F
constexpr int32_t kAsItIs = 0, kTransposed = 1;  // CUBLAS_OP_N, CUBLAS_OP_T
constexpr int kTransposeA = 3, kTransposeB = 4;  // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB: int32_t
constexpr int kMostWorkspace = 1;                // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: uint64_t
constexpr int kReductionMask = 3;                // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: uint32_t
constexpr int kAlignmentA = 5;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: uint32_t; B, C, D
constexpr int kSplitsOfK = 2,
              kReduction = 3;         // CUBLASLT_ALGO_CONFIG_SPLITK_NUM: int32_t, _REDUCTION_SCHEME: uint32_t
constexpr uint32_t kNoReduction = 0;  // CUBLASLT_REDUCTION_SCHEME_NONE

struct Algorithm {  ///< cublasLtMatmulAlgo_t
  uint64_t words[8];
};
struct Suggestion {  ///< cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

/// f(result, name here, name in the library, parameters)
// clang-format off
#define INGOT_CUBLASLT_FUNCTIONS(f)                                                                          \
  f(size_t, version, "cublasLtGetVersion", ())                                                               \
  f(const char*, status_name, "cublasLtGetStatusName", (Status status))                                      \
  f(Status, create, "cublasLtCreate", (Handle* handle))                                                      \
  f(Status, destroy, "cublasLtDestroy", (Handle handle))                                                     \
  f(Status, operation_create, "cublasLtMatmulDescCreate", (Operation* operation, int compute, int scale))    \
  f(Status, operation_destroy, "cublasLtMatmulDescDestroy", (Operation operation))                           \
  f(Status, operation_set, "cublasLtMatmulDescSetAttribute",                                                 \
    (Operation operation, int attribute, const void* value, size_t bytes))                                   \
  f(Status, layout_create, "cublasLtMatrixLayoutCreate",                                                     \
    (Layout* layout, int type, uint64_t rows, uint64_t columns, int64_t stride))                             \
  f(Status, layout_destroy, "cublasLtMatrixLayoutDestroy", (Layout layout))                                  \
  f(Status, preference_create, "cublasLtMatmulPreferenceCreate", (Preference* preference))                   \
  f(Status, preference_destroy, "cublasLtMatmulPreferenceDestroy", (Preference preference))                  \
  f(Status, preference_set, "cublasLtMatmulPreferenceSetAttribute",                                          \
    (Preference preference, int attribute, const void* value, size_t bytes))                                 \
  f(Status, suggest, "cublasLtMatmulAlgoGetHeuristic",                                                       \
    (Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d, Preference preference,      \
     int most, Suggestion* suggestions, int* count))                                                         \
  f(Status, algorithm_check, "cublasLtMatmulAlgoCheck",                                                      \
    (Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d, const Algorithm* algorithm, \
     Suggestion* result))                                                                                    \
  f(Status, algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute",                                           \
    (const Algorithm* algorithm, int attribute, void* value, size_t bytes, size_t* written))                 \
  f(Status, multiply, "cublasLtMatmul",                                                                      \
    (Handle handle, Operation operation, const void* alpha, const void* a, Layout layout_a, const void* b,   \
     Layout layout_b, const void* beta, const void* c, Layout layout_c, void* d, Layout layout_d,            \
     const Algorithm* algorithm, void* workspace, size_t workspace_bytes, cuda_driver::Stream stream))
// clang-format on

struct Library {
#define INGOT_CUBLASLT_MEMBER(result, member, name, parameters) result(*member) parameters = nullptr;
  INGOT_CUBLASLT_FUNCTIONS(INGOT_CUBLASLT_MEMBER)
#undef INGOT_CUBLASLT_MEMBER
  std::string path;   ///< as it was asked for
  size_t number = 0;  ///< 10000 * major + 100 * minor + patch

  bool is_faked = false;             ///< one of tests, for a driver that is faked
  std::string version_text() const;  ///< "13.1.0"
  /// "CUBLAS_STATUS_NOT_SUPPORTED (15)"
  std::string text_of(Status status) const;
};

/// Oldest version that may be used: that of CUDA 12.0.
constexpr size_t kOldestLibrary = 120000;

/// Where it is looked for: what INGOT_CUBLASLT_LIBRARY names, else libcublasLt.so.13 and .12.
std::vector<std::string> library_names();
/// The first of these that opens. Error where none does, and where it lacks a function or is too old.
Library open_library(const std::vector<std::string>& names = library_names());

}  // namespace ingot::cublaslt
