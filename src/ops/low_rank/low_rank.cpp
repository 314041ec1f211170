// See low_rank.h: the op's description.
#include "ops/low_rank/low_rank.h"

#include <numeric>

#include "ops/low_rank/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &base = call.in[0], &h = call.in[1], &b = call.in[2];
  const auto& a = call.attr<LowRankAttr>();
  INGOT_CHECK(base.shape().rank() == 2 && h.shape().rank() == 2 && b.shape().rank() == 2 &&
                  base.dim(0) == h.dim(0) && base.dim(1) == b.dim(0) && h.dim(1) == a.blocks * b.dim(1),
              "{} + {} by {} in {} blocks", base.meta.str(), h.meta.str(), b.meta.str(), a.blocks);
  INGOT_CHECK(std::accumulate(a.rows.begin(), a.rows.begin() + a.blocks, int64_t{0}) == b.dim(0),
              "blocks of {}", b.meta.str());
  out[0] = {base.shape(), a.out};
}

OpCost cost(const OpCall& call) {
  const double product =
      2.0 * static_cast<double>(call.in[0].dim(0)) * static_cast<double>(call.in[2].numel());
  return {product, product, product, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(2);
  r.weight_in = slot_bit(1);
  return r;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const LowRankAttr*>(attr);
  return fmt::format("out={} scale={} blocks={}", name_of(a.out), a.scale, a.blocks);
}

}  // namespace

const Op& low_rank_op() {
  static const Op op{"low_rank",
                     {{"base"}, {"h"}, {"b", InputKind::weight}},
                     {{"y"}},
                     reads,
                     infer,
                     cost,
                     low_rank_scratch_bytes,
                     print,
                     low_rank_kernels()};
  return op;
}

Value low_rank(Tape& tape, DType out, double scale, std::span<const int64_t> rows, const Value& base_TN,
               const Value& h_TR, const Value& b_NK) {
  INGOT_CHECK(!rows.empty() && rows.size() <= LowRankAttr::kMaxBlocks, "{} blocks", rows.size());
  LowRankAttr attr{scale, out, static_cast<int32_t>(rows.size()), {}};
  std::copy(rows.begin(), rows.end(), attr.rows.begin());
  return tape.apply(low_rank_op(), attr, {base_TN, h_TR, b_NK}).front();
}

}  // namespace ingot
