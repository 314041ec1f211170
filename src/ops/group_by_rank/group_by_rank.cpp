// See group_by_rank.h: the op's description, and its maps.
#include "ops/group_by_rank/group_by_rank.h"

#include <algorithm>

#include "ops/group_by_rank/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &x = call.in[0], &probs = call.in[1], &ids = call.in[2];
  const auto& a = call.attr<GroupByRankAttr>();
  INGOT_CHECK(x.shape().rank() == 2 && ids.shape().rank() == 2 && ids.dim(0) == x.dim(0) && ids.dtype() == DType::i32 &&
                  probs.shape() == ids.shape(),
              "x {} probs {} ids {}", x.meta.str(), probs.meta.str(), ids.meta.str());
  INGOT_CHECK(a.ranks > 0 && a.copies > 0 && a.ranks % a.copies == 0 && a.experts % (a.ranks / a.copies) == 0,
              "{} experts on {} ranks, {} copies", a.experts, a.ranks, a.copies);
  const int64_t tokens = x.dim(0), k = ids.dim(1), most = std::min<int64_t>(k * a.copies, a.ranks), rows = tokens * most;
  out[0] = {Shape{rows, x.dim(1)}, x.dtype()};
  out[1] = {Shape{rows, k}, probs.dtype()};
  out[2] = {Shape{rows, k}, DType::i32};
  out[3] = {Shape{a.ranks}, DType::i32};
  out[4] = {Shape{rows}, DType::i32};
  out[5] = {Shape{tokens, most}, DType::i32};
}

OpCost cost(const OpCall& call) {
  return {0, static_cast<double>(call.out[0].numel() + call.in[1].numel()), 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(2);
  r.input_out = slot_bit(5);
  return r;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const GroupByRankAttr*>(attr_data);
  return fmt::format("{} experts on {} ranks, {} copies", a.experts, a.ranks, a.copies);
}

/// The different ranks of one token's choices, ascending.
std::vector<int32_t> ranks_of(const GroupByRankAttr& a, const int32_t* ids, int64_t k) {
  std::vector<int32_t> ranks;
  for (int64_t j = 0; j < k; ++j) {
    INGOT_CHECK(ids[j] < a.experts, "expert {} of {}", ids[j], a.experts);
    for (int32_t copy = 0; copy < a.copies && ids[j] >= 0; ++copy) ranks.push_back(a.rank_of(ids[j]) + copy);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

void build_rank_map(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const int64_t tokens = call.in[2].dim(0), k = call.in[2].dim(1), most = call.out[5].dim(1);
  const auto* ids = call.in[2].as<int32_t>();
  auto *kept = call.out[2].as<int32_t>(), *count = call.out[3].as<int32_t>(), *token = call.out[4].as<int32_t>(),
       *row = call.out[5].as<int32_t>();
  std::fill(kept, kept + call.out[2].numel(), -1);
  std::fill(count, count + a.ranks, 0);
  std::fill(token, token + call.out[4].numel(), -1);
  std::fill(row, row + call.out[5].numel(), -1);
  for (int64_t t = 0; t < tokens; ++t)
    for (const int32_t r : ranks_of(a, ids + t * k, k)) ++count[r];
  std::vector<int32_t> next(static_cast<size_t>(a.ranks), 0);
  for (size_t r = 1; r < next.size(); ++r) next[r] = next[r - 1] + count[r - 1];
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t* slot = row + t * most;
    for (const int32_t r : ranks_of(a, ids + t * k, k)) {
      const int32_t to = next[static_cast<size_t>(r)]++;
      token[to] = static_cast<int32_t>(t);
      *slot++ = to;
      for (int64_t j = 0; j < k; ++j)
        if (ids[t * k + j] >= 0 && a.rank_of(ids[t * k + j]) == r - r % a.copies) kept[to * k + j] = ids[t * k + j];
    }
  }
}

std::vector<int32_t> rows_of_choices(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const int64_t k = call.in[2].dim(1), most = call.out[5].dim(1);
  const auto *ids = call.in[2].as<int32_t>(), *row = call.out[5].as<int32_t>();
  std::vector<int32_t> rows(static_cast<size_t>(call.in[2].numel() * a.copies), -1);
  for (int64_t t = 0; t < call.in[2].dim(0); ++t) {
    const std::vector<int32_t> ranks = ranks_of(a, ids + t * k, k);
    for (int64_t j = 0; j < k; ++j) {
      if (ids[t * k + j] < 0) continue;
      const auto place = std::lower_bound(ranks.begin(), ranks.end(), a.rank_of(ids[t * k + j])) - ranks.begin();
      std::copy_n(row + t * most + place, a.copies, rows.begin() + (t * k + j) * a.copies);
    }
  }
  return rows;
}

const Op& group_by_rank_op() {
  static const Op op{"group_by_rank",
                     {{"x"}, {"probs"}, {"ids", InputKind::data}},
                     {{"rows"}, {"probs"}, {"ids", false}, {"rows_per_rank", false}, {"token", false}, {"row", false}},
                     reads,
                     infer,
                     cost,
                     nullptr,
                     print,
                     group_by_rank_kernels()};
  return op;
}

RankRows group_by_rank(Tape& tape, const GroupByRankAttr& attr, const Value& x_TD, const Value& probs_TK,
                       const Value& ids_TK) {
  auto o = tape.apply(group_by_rank_op(), attr, {x_TD, probs_TK, ids_TK});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), std::move(o[3]), std::move(o[4]), std::move(o[5])};
}

}  // namespace ingot
