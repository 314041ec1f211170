// The kernels of sequence_balance.cu. Plain. Those of rows are route's (ops/route/gpu_route.h).
#pragma once
#include "ops/route/gpu_route.h"

namespace ingot {

/// losses[d] = the sum over experts of count times mass, over the length of document d. `sums`: of each
/// chunk, `stride` apart, counts [E], then masses [E], as route's forward leaves them.
INGOT_GPU_KERNEL(void, launch_balance_documents,
                 (GpuStream stream, const GpuRouteDocuments& documents, const float* sums, int64_t stride,
                  int64_t experts, double* losses));
/// *loss = factor times the sum of the documents' losses.
INGOT_GPU_KERNEL(void, launch_balance_loss,
                 (GpuStream stream, const double* losses, int64_t documents, double factor, float* loss));
/// The same of documents in a list.
INGOT_GPU_KERNEL(void, launch_balance_list,
                 (GpuStream stream, const GpuRouteList& documents, const float* sums, int64_t stride,
                  int64_t experts, double* losses));
INGOT_GPU_KERNEL(void, launch_balance_list_loss,
                 (GpuStream stream, const double* losses, const GpuRouteList& documents, double factor,
                  float* loss));

struct GpuBalanceGradient {
  int64_t experts, k;
  double factor;
  const int32_t* ids;
  const float* d_loss;
  float* counts;  ///< [chunks, E]: of the call's chunks
  float* d_mass;  ///< [documents, E]: the result, of the call's documents
};
INGOT_GPU_KERNEL(void, launch_balance_gradient,
                 (GpuStream stream, const GpuBalanceGradient& args, const GpuRouteDocuments& documents));
INGOT_GPU_KERNEL(void, launch_balance_list_gradient,
                 (GpuStream stream, const GpuBalanceGradient& args, const GpuRouteList& documents));

}  // namespace ingot
