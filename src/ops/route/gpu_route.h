// The kernels of route.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/route/isa_route.h"

namespace ingot {

inline constexpr int64_t kMaxGpuRouteGroups = 64;  ///< where some of them are kept: a bit each in a register
inline constexpr int64_t kGpuRouteChunk = 64;      ///< rows of a block

/// route_forward() of chunks of kGpuRouteChunk rows; the counts of chunk c begin at sums + c * stride and are
/// followed by mass, square and entropy.
INGOT_GPU_KERNEL(void, launch_route_forward,
                 (GpuStream stream, const RouteRows& args, int64_t rows, float* sums, int64_t stride));

/// How much the mass of expert e counts in the balance loss: experts_by_rows * ((load[e] + earlier[e]) /
/// choices).
struct GpuRouteBalance {
  int64_t experts;
  double experts_by_rows, choices;
  const float* load;
  const float* earlier;  ///< nullptr: 0
};

/// What becomes of the sums of all chunks.
struct GpuRouteLosses {
  GpuRouteBalance balance;
  const float* totals;  ///< counts [E], mass [E], square, entropy
  double rows;          ///< at least 1
  float* counts;        ///< [E]
  float *aux, *z, *entropy;
};
INGOT_GPU_KERNEL(void, launch_route_losses, (GpuStream stream, const GpuRouteLosses& args));

/// The cotangents of the losses, and from them those of the sums, which route_backward() reads in scratch.
struct GpuRouteCotangents {
  GpuRouteBalance balance;
  double rows;
  const float* d_aux;  ///< nullptr: 0
  const float* d_z;    ///< nullptr: 0
  float* d_mass;       ///< [E]
  float* d_square;     ///< [1]
};
/// route_backward() of all rows; args.d_square is not looked at.
INGOT_GPU_KERNEL(void, launch_route_backward,
                 (GpuStream stream, const RouteRows& args, int64_t rows, const GpuRouteCotangents& losses));

}  // namespace ingot
