// group_by_rank: orders tokens by the ranks that hold their experts, each token once per rank however many of
// its experts that rank has ([Megatron-MoE] §4.2.2, as DeepEP and HybridEP send tokens). A row is sent with
// its choices on that rank and their weights.
//
// Experts first .. first + E - 1 lie on g expert groups of c ranks; each of the c ranks has a c-th of the
// width of every expert of its group (expert tensor parallelism, `copies`), so a token goes to all c ranks of
// an expert. Rank r of n = g c belongs to group i = floor(r / c), which holds experts first + [i E / g, (i +
// 1) E / g). Rows are ordered by rank, then by token. A token goes to at most M = min(k c, n) ranks, so there
// are S = T M row slots; slots beyond the sum of rows_per_rank are padding.
//
//   bound     > 0: a rank gets at most that many rows, so S = min(T M, n bound); choices of later tokens are
//             not sent
//   choices   > 0: nor does a rank get more choices than that: a token's row with more than are left is not
//   sent
//   blocks    (i32 [B], optional) x consists of B blocks of these numbers of tokens, then tokens without
//             choices; rows_per_rank is then [n, B]
//
// Shapes: x_TD (any float), probs_TK (f32, or f64), ids_TK (i32; -1: no choice)
//   -> rows_SD (x's type)
//      probs_SK (probs' type), ids_SK (i32): the token's choices on that rank in their places; else 0, -1
//      rows_per_rank (i32 [n])
//      token_S (i32): the token of a row; -1: padding
//      row_TM (i32): the rows of a token, ascending by rank; -1: no more, or not sent. For unpermute.
//      dropped_1 (f32): choices that were not sent
// The gradients of a token's rows are added by rank, and so are those of a weight, which come from c rows.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct GroupByRankAttr {
  int32_t ranks = 1;    ///< n
  int32_t experts = 0;  ///< E, a multiple of n / copies
  int32_t copies = 1;   ///< c, divides n
  int32_t first = 0;    ///< of the experts
  int64_t bound = 0;    ///< 0: none
  int64_t choices = 0;  ///< 0: no bound

  /// The first of c.
  int32_t rank_of(int32_t expert) const { return (expert - first) / (experts / (ranks / copies)) * copies; }
};

struct RankRows {
  Value rows_SD, probs_SK, ids_SK, rows_per_rank, token_S, row_TM, dropped;
};

RankRows group_by_rank(Tape& tape, const GroupByRankAttr& attr, const Value& x_TD, const Value& probs_TK,
                       const Value& ids_TK, const Value& blocks = {});

const Op& group_by_rank_op();
Kernel group_by_rank_reference();

// What both kernels use.
/// Fills the integer outputs of the forward from the ids; an id that is no expert of the model's is a bug of
/// the caller.
void build_rank_map(const OpCall& call);
/// For every choice, the rows that carry it [T, k, copies], or -1: they bring back the gradient of its
/// weight. From ids and row_TM of a backward call.
std::vector<int32_t> rows_of_choices(const OpCall& call);

}  // namespace ingot
