// See embedding.h: the op's description, and its CPU kernel: rows gathered in parallel; the gradient
// visits the tokens of each id in their order.
#include "ops/embedding/embedding.h"

#include <cstring>

#include "device/gemm/gemm.h"
#include "device/memory/scratch.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &ids = call.in[0], &table = call.in[1];
  INGOT_CHECK(ids.shape().rank() == 1 && ids.dtype() == DType::i32, "ids are {}", ids.meta.str());
  INGOT_CHECK(table.shape().rank() == 2, "table is {}", table.meta.str());
  out[0] = {Shape{ids.dim(0), table.dim(1)}, call.attr<EmbeddingAttr>().out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].dim(0) * call.in[1].dim(1));
  const auto out = static_cast<double>(size_of(call.attr<EmbeddingAttr>().out));
  OpCost c{0, 0, n, n * (static_cast<double>(call.in[1].meta.element_bytes()) + out)};
  // On top of other contributions it touches the rows of its tokens only.
  if (call.d_in.size() > 1 && call.d_in[1].accumulate) c.weight_bytes = n * (out + 2 * sizeof(float));
  return c;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const EmbeddingAttr*>(attr);
  return fmt::format("out={}{}", name_of(a.out), a.absent ? " absent ids" : "");
}

constexpr int64_t kElements = 1 << 15;  // per piece of work

/// Rows of a table that lies packed for the head's product: columns of its panels.
void gather_columns(const Tensor& y, const PackedWeights& table, const int32_t* id) {
  const int64_t width = y.dim(1);
  parallel_for(y.dim(0), row_grain(width, kElements / 8), [&](int64_t begin, int64_t end) {
    auto* row = static_cast<float*>(
        scratch(ScratchSlot::kernel, std::max<int64_t>(width, 1) * int64_t{sizeof(float)}));
    for (int64_t t = begin; t < end; ++t) {
      if (id[t] >= 0)
        table.column(0, id[t], row);
      else
        std::memset(row, 0, static_cast<size_t>(width) * sizeof(float));
      INGOT_ISA_CALL(array_copy)
      (static_cast<char*>(y.data) + t * width * size_of(y.dtype()), y.dtype(), row, DType::f32, width, false);
    }
  });
}

void forward(const OpCall& call) {
  const Tensor &ids = call.in[0], &table = call.in[1], &y = call.out[0];
  const auto* id = ids.as<int32_t>();
  for (int64_t t = 0; t < ids.numel(); ++t)
    if (!call.attr<EmbeddingAttr>().legal(id[t], table.dim(0)))
      fail("token {} at position {} is outside the vocabulary of {}", id[t], t, table.dim(0));
  if (table.packed() != nullptr) return gather_columns(y, *table.packed(), id);
  gather_tensor_rows({y, false}, table, id, 1);
}

/// Tokens sorted by id (counting sort, stable): those of id v are order[first[v]] .. order[first[v + 1]].
struct TokensById {
  int32_t *first, *order;
};

TokensById sort_tokens(const Tensor& ids, int64_t vocabulary, void* scratch) {
  const auto* id = ids.as<int32_t>();
  const int64_t tokens = ids.numel();
  TokensById by_id{static_cast<int32_t*>(scratch), static_cast<int32_t*>(scratch) + vocabulary + 2};
  // first[v + 2] counts v, so that after the running sum first[v + 1] is where v begins, and moves to where
  // it ends.
  std::memset(by_id.first, 0, static_cast<size_t>(vocabulary + 2) * sizeof(int32_t));
  for (int64_t t = 0; t < tokens; ++t)
    if (id[t] >= 0) ++by_id.first[id[t] + 2];
  for (int64_t v = 0; v < vocabulary; ++v) by_id.first[v + 2] += by_id.first[v + 1];
  for (int64_t t = 0; t < tokens; ++t)
    if (id[t] >= 0) by_id.order[by_id.first[id[t] + 1]++] = static_cast<int32_t>(t);
  return by_id;
}

void backward_weight(const OpCall& call) {
  const Tensor& d_y = call.d_out[0];
  const GradSlot& d_table = call.d_in[1];
  const int64_t vocabulary = d_table.tensor.dim(0), width = d_table.tensor.dim(1),
                tokens = call.in[0].numel();
  const TokensById by_id = sort_tokens(call.in[0], vocabulary, call.scratch);
  const int64_t row_work = width * (1 + tokens / std::max<int64_t>(1, vocabulary));
  parallel_for(vocabulary, row_grain(row_work, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      float* to = d_table.tensor.as<float>() + v * width;
      if (!d_table.accumulate) std::memset(to, 0, static_cast<size_t>(width) * sizeof(float));
      for (int64_t i = by_id.first[v]; i < by_id.first[v + 1]; ++i) INGOT_ISA_CALL(array_copy)
      (to, DType::f32, static_cast<const char*>(d_y.data) + by_id.order[i] * width * size_of(d_y.dtype()),
       d_y.dtype(), width, true);
    }
  });
}

const char* refuse(const OpCall& call) {
  return refuse_weight_types(call, 1);
}

int64_t scratch_bytes(const OpCall& call) {
  if (call.d_in.size() < 2 || !call.d_in[1].wanted()) return 0;
  return (call.d_in[1].tensor.dim(0) + 2 + call.in[0].numel()) * int64_t{sizeof(int32_t)};
}

}  // namespace

const Op& embedding_op() {
  static const Op op{
      .name = "embedding",
      .inputs = {{"ids", InputKind::data}, {"table", InputKind::weight}},
      .outputs = {{"y"}},
      .reads = always<BackwardReads{.weight_in = slot_bit(0)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels("embedding", {{"cpu",
                                                 refuse,
                                                 forward,
                                                 nullptr,
                                                 backward_weight,
                                                 {.rounded = slot_bit(1), .packed = slot_bit(1)}},
                                                embedding_reference()}),
      .axis_rule = {.passes = kRowwise,
                    .sharded = {{1, 0, {AxisType::shards, AxisType::partial}},
                                {1, 1, {AxisType::shared, AxisType::shards}}}}};
  return op;
}

Value embedding(Tape& tape, const EmbeddingAttr& attr, const Value& ids_T, const Value& table_VD) {
  return tape.apply(embedding_op(), attr, {ids_T, table_VD}).front();
}

}  // namespace ingot
