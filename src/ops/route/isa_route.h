// The kernels of isa_route.cpp, over ranges of rows. Plain: compiled for each instruction set.
#pragma once
#include <cstdint>

#include "device/simd/isa.h"

namespace ingot {

constexpr int64_t kMaxRouteClasses = 1024;  ///< E + S: a kernel keeps blocks of 16 rows of them on its stack

struct RouteRows {
  int64_t experts, classes, k;  ///< E, E + S
  int64_t choices;              ///< classes that can be chosen: E, or E + S; from E on they mean no expert
  int64_t groups, groups_kept;  ///< of the experts; equal: no limit
  bool logits_score;            ///< the selection compares logits, else scores
  bool sigmoid;                 ///< scores are sigmoid(logits), else softmax
  bool divide;                  ///< by the sum over the chosen
  float epsilon;                ///< added to that sum
  float scale;
  const float* logits;    ///< [rows, E + S]
  const float* bias;      ///< [choices] or nullptr
  const int32_t* forced;  ///< [rows, k] or nullptr; -1: no choice
  float* probs;           ///< [rows, k] or nullptr
  int32_t* ids;           ///< [rows, k]; backward reads
  const float* d_probs;   ///< backward: nullptr: zero
  const float* d_mass;    ///< backward: [E], cotangent of the sum of P over tokens
  float d_square;         ///< backward: cotangent of the sum of lse^2
  float* d_logits;
  bool accumulate;
};

/// Sums over a chunk of rows; the kernel adds.
struct RouteSums {
  float* counts;   ///< [E]
  float* mass;     ///< [E]: of P
  float* square;   ///< [1]: of lse^2
  float* entropy;  ///< [1]
};

INGOT_ISA_KERNEL(void, route_forward,
                 (const RouteRows& args, int64_t begin, int64_t end, const RouteSums& sums));
INGOT_ISA_KERNEL(void, route_backward, (const RouteRows& args, int64_t begin, int64_t end));

}  // namespace ingot
