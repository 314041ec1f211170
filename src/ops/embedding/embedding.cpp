// See embedding.h: the op's description.
#include "ops/embedding/embedding.h"

#include "ops/embedding/kernels.h"

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
  OpCost c{0, 0, n, n * (static_cast<double>(size_of(call.in[1].dtype())) + out)};
  // On top of other contributions it touches the rows of its tokens only.
  if (call.d_in.size() > 1 && call.d_in[1].accumulate) c.weight_bytes = n * (out + 2 * sizeof(float));
  return c;
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.weight_in = slot_bit(0);
  return r;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const EmbeddingAttr*>(attr);
  return fmt::format("out={}{}", name_of(a.out), a.absent ? " absent ids" : "");
}

}  // namespace

const Op& embedding_op() {
  static const Op op{"embedding",
                     {{"ids", InputKind::data}, {"table", InputKind::weight}},
                     {{"y"}},
                     reads,
                     infer,
                     cost,
                     embedding_scratch_bytes,
                     print,
                     embedding_kernels()};
  return op;
}

Value embedding(Tape& tape, const EmbeddingAttr& attr, const Value& ids_T, const Value& table_VD) {
  return tape.apply(embedding_op(), attr, {ids_T, table_VD}).front();
}

}  // namespace ingot
