// sequence_balance on a GPU, but for its rows: a block a document adds up what route's kernels left of its
// chunks, and one block what the documents leave.
#include "device/gpu/ordered_sum.h"
#include "ops/route/gpu_chunks.h"
#include "ops/sequence_balance/gpu_sequence_balance.h"

namespace ingot::INGOT_ISA {
namespace {

/// The block's document; without rows: it has none.
struct DocumentPlace {
  int64_t number, rows, first_chunk, end_chunk;  ///< number: in the call
};
INGOT_INLINE DocumentPlace document_of_block(const GpuRouteDocuments& d) {
  const unsigned own = block_index();
  return {int64_t{d.first_document} + own, int64_t{d.of[own + 1].first_row} - d.of[own].first_row,
          d.of[own].first_chunk, d.of[own + 1].first_chunk};
}
INGOT_INLINE DocumentPlace document_of_block(const GpuRouteList& d) {
  const int64_t own = block_index();
  if (own >= d.list.count()) return {own, 0, 0, 0};
  const int64_t rows = d.list.rows(own), first = d.list.first_tile(own, 1, kGpuRouteChunk);
  return {own, rows, first, first + (rows + kGpuRouteChunk - 1) / kGpuRouteChunk};
}
/// The sum over the document's chunks, in ascending order.
INGOT_INLINE float chunk_sum(const DocumentPlace& at, const float* of_chunks, int64_t stride) {
  float sum = 0;
  for (int64_t c = at.first_chunk; c < at.end_chunk; ++c) sum = add_rn(sum, of_chunks[c * stride]);
  return sum;
}

template <class Documents>
INGOT_KERNEL(kRowKernelThreads)
documents_kernel(const Documents documents, const float* sums, int64_t stride, int64_t experts,
                 double* losses) {
  INGOT_SHARED(Terms, terms);
  const DocumentPlace at = document_of_block(documents);
  if (at.rows == 0) return;
  const double sum = ordered_sum(terms, experts, [&](int64_t e) {
    return static_cast<double>(chunk_sum(at, sums + e, stride)) *
           static_cast<double>(chunk_sum(at, sums + experts + e, stride));
  });
  if (thread_index() == 0) losses[at.number] = sum / static_cast<double>(at.rows);
}

/// One block.
INGOT_KERNEL(kRowKernelThreads)
loss_kernel(const double* losses, int64_t documents, double factor, float* loss) {
  INGOT_SHARED(Terms, terms);
  const double sum = ordered_sum(terms, documents, [&](int64_t d) { return losses[d]; });
  if (thread_index() == 0) *loss = static_cast<float>(factor * sum);
}

INGOT_KERNEL(kRowKernelThreads)
list_loss_kernel(const double* losses, const GpuRouteList documents, double factor, float* loss) {
  INGOT_SHARED(Terms, terms);
  const double sum = ordered_sum(terms, documents.list.count(), [&](int64_t d) { return losses[d]; });
  if (thread_index() == 0) *loss = static_cast<float>(factor * sum);
}

template <class Documents>
INGOT_KERNEL(kRowKernelThreads)
counts_kernel(const GpuBalanceGradient a, const Documents documents) {
  const ChunkPlace at = place_of_block(documents);
  if (at.count == 0) return;
  count_choices(a.ids, at.begin * a.k, (at.begin + at.count) * a.k, a.experts,
                a.counts + at.number * a.experts);
}

template <class Documents>
INGOT_KERNEL(kRowKernelThreads)
gradient_kernel(const GpuBalanceGradient a, const Documents documents) {
  const DocumentPlace at = document_of_block(documents);
  if (at.rows == 0) return;
  const double scale = a.factor * static_cast<double>(*a.d_loss);
  for (int64_t e = thread_index(); e < a.experts; e += kRowKernelThreads) {
    const auto count = static_cast<double>(chunk_sum(at, a.counts + e, a.experts));
    a.d_mass[at.number * a.experts + e] = static_cast<float>(scale * count / static_cast<double>(at.rows));
  }
}

}  // namespace

void launch_balance_documents(GpuStream stream, const GpuRouteDocuments& documents, const float* sums,
                              int64_t stride, int64_t experts, double* losses) {
  launch("balance_documents", documents_kernel<GpuRouteDocuments>, {documents.count, kRowKernelThreads},
         stream, documents, sums, stride, experts, losses);
}

void launch_balance_loss(GpuStream stream, const double* losses, int64_t documents, double factor,
                         float* loss) {
  launch("balance_loss", loss_kernel, {1, kRowKernelThreads}, stream, losses, documents, factor, loss);
}

void launch_balance_gradient(GpuStream stream, const GpuBalanceGradient& a,
                             const GpuRouteDocuments& documents) {
  launch("balance_counts", counts_kernel<GpuRouteDocuments>, {documents.chunks(), kRowKernelThreads}, stream,
         a, documents);
  launch("balance_gradient", gradient_kernel<GpuRouteDocuments>, {documents.count, kRowKernelThreads}, stream,
         a, documents);
}

void launch_balance_list(GpuStream stream, const GpuRouteList& documents, const float* sums, int64_t stride,
                         int64_t experts, double* losses) {
  launch("balance_list", documents_kernel<GpuRouteList>, {documents.count(), kRowKernelThreads}, stream,
         documents, sums, stride, experts, losses);
}

void launch_balance_list_loss(GpuStream stream, const double* losses, const GpuRouteList& documents,
                              double factor, float* loss) {
  launch("balance_list_loss", list_loss_kernel, {1, kRowKernelThreads}, stream, losses, documents, factor,
         loss);
}

void launch_balance_list_gradient(GpuStream stream, const GpuBalanceGradient& a,
                                  const GpuRouteList& documents) {
  launch("balance_list_counts", counts_kernel<GpuRouteList>, {documents.chunks(), kRowKernelThreads}, stream,
         a, documents);
  launch("balance_list_gradient", gradient_kernel<GpuRouteList>, {documents.count(), kRowKernelThreads},
         stream, a, documents);
}

}  // namespace ingot::INGOT_ISA
