// The kernels of route.cu. Plain.
#pragma once
#include "device/documents.h"
#include "device/gpu/launch.h"
#include "ops/route/isa_route.h"

namespace ingot {

inline constexpr int64_t kMaxGpuRouteGroups = 64;  ///< where some of them are kept: a bit each in a register
inline constexpr int64_t kGpuRouteChunk = 64;      ///< rows of a block

/// route_forward() of chunks of kGpuRouteChunk rows; the counts of chunk c begin at sums + c * stride and are
/// followed by mass, square and entropy.
INGOT_GPU_KERNEL(void, launch_route_forward,
                 (GpuStream stream, const RouteRows& args, int64_t rows, float* sums, int64_t stride));

/// Some of a call's documents, all of which have rows: those of one launch, in order. They go with it: they
/// are not looked for in the device's memory.
struct GpuRouteDocuments {
  static constexpr int kMost = 240;
  struct Document {
    int32_t first_row;
    int32_t first_chunk;  ///< number of its first chunk of kGpuRouteChunk rows in the call
  };
  int32_t first_document;  ///< documents of launches before
  int32_t count;
  Document of[kMost + 1];  ///< the one behind the last says where that ends

  int64_t chunks() const { return of[count].first_chunk - of[0].first_chunk; }
};
/// The same where chunks begin anew at each document. Chunks have their numbers in the call.
INGOT_GPU_KERNEL(void, launch_route_documents_forward,
                 (GpuStream stream, const RouteRows& args, const GpuRouteDocuments& documents, float* sums,
                  int64_t stride));
/// route_backward() of the documents' rows, without a cotangent of the sum of squares; args.d_mass has the
/// cotangents of all documents of the call, [documents, E].
INGOT_GPU_KERNEL(void, launch_route_documents_backward,
                 (GpuStream stream, const RouteRows& args, const GpuRouteDocuments& documents));

/// Documents of a call in a list, which all go with one launch: chunk c of document d has number
/// first_tile(d, 1, kGpuRouteChunk) + c.
struct GpuRouteList {
  DocumentList list;
  int64_t rows;  ///< of all

  int64_t count() const { return list.capacity; }
  int64_t chunks() const { return list.most_tiles(rows, 1, kGpuRouteChunk); }
};
INGOT_GPU_KERNEL(void, launch_route_list_forward,
                 (GpuStream stream, const RouteRows& args, const GpuRouteList& documents, float* sums,
                  int64_t stride));
INGOT_GPU_KERNEL(void, launch_route_list_backward,
                 (GpuStream stream, const RouteRows& args, const GpuRouteList& documents));

/// How much the mass of expert e counts in the balance loss: experts_by_rows * ((load[e] + earlier[e]) /
/// (choices * (1 + earlier[experts]))).
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
